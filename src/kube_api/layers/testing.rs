//! A transport that tests script: a function from a request to its answer.
