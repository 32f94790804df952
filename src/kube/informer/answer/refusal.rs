//! The body of an answer that refuses a list or a watch.
//!
//! A server refuses a request for protobuf in protobuf; a proxy in front of it may answer in JSON or
//! in text. Each of them is read as a `Status`, as kube's client does.

use http::StatusCode;
use http_body_util::{BodyExt as _, Collected, Limited};
use kube::{client::Body, core::Status};

use crate::kube::encoding::Encoding;

/// The most bytes that are read of a refusal.
const MAX_READ: usize = 64 << 10;

/// Reads the body of a refusal.
pub(super) async fn read(code: StatusCode, encoding: Encoding, body: Body) -> Status {
    // Without its explanation it is a refusal all the same.
    let body = Limited::new(body, MAX_READ).collect().await;
    status_of(code, encoding, &body.map(Collected::to_bytes).unwrap_or_default())
}

/// Reads the status in a body, or makes one of the code and the text.
fn status_of(code: StatusCode, encoding: Encoding, body: &[u8]) -> Status {
    encoding.read_status(body).unwrap_or_else(|| {
        let text = match encoding {
            Encoding::Json => String::from_utf8_lossy(body),
            Encoding::Protobuf => "".into(),
        };
        Status::failure(text.trim(), "").with_code(code.as_u16())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::apiserver::protobuf;

    use super::*;

    fn words(code: u16, encoding: Encoding, body: &[u8]) -> (u16, String, String) {
        let status = status_of(StatusCode::from_u16(code).unwrap(), encoding, body);
        (status.code, status.reason, status.message)
    }

    #[test]
    fn a_refusal_reads_the_same_in_both_forms() {
        let status = json!({"status": "Failure", "code": 410, "reason": "Expired", "message": "m"});
        let expired = (410, "Expired".to_owned(), "m".to_owned());
        assert_eq!(words(410, Encoding::Protobuf, &protobuf::status(&status).unwrap()), expired);
        assert_eq!(words(410, Encoding::Json, status.to_string().as_bytes()), expired);
    }

    #[test]
    fn a_body_that_is_no_status_gives_one_with_the_code() {
        assert_eq!(
            words(429, Encoding::Json, b" Too many\n"),
            (429, String::new(), "Too many".to_owned())
        );
        for (encoding, body) in [
            (Encoding::Protobuf, &b"k8s\0\x12\x09a"[..]),
            (Encoding::Protobuf, b"busy"),
            (Encoding::Protobuf, b""),
            (Encoding::Json, b""),
        ] {
            assert_eq!(words(503, encoding, body), (503, String::new(), String::new()));
        }
    }
}
