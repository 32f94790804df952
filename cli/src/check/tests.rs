//! What a check says of whole manifests is tested on the real program.

mod flags_page;
