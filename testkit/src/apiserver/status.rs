//! What the server answers when it says no: the Status object with the real server's codes, reasons and words
//! (apimachinery's `pkg/api/errors`).

use std::fmt;

use go_fmt::quote;
use serde_json::{Value, json};

use super::{resources::Kind, tree};

/// A failure: an HTTP code and a Status object.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The HTTP code.
    pub code: u16,
    /// The Status object.
    pub body: Value,
    /// The seconds of a Retry-After header.
    pub retry_after: Option<u32>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl Status {
    /// A failure with a reason and a message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code});
        if !reason.is_empty() {
            tree::set(&mut body, &["reason"], json!(reason));
        }
        Self { code, body, retry_after: None }
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        tree::text(&self.body, &["message"])
    }

    /// The reason for programs.
    pub fn reason(&self) -> &str {
        tree::text(&self.body, &["reason"])
    }

    /// With `details` of the object it is about.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        tree::set(&mut self.body, &["details"], details);
        self
    }

    /// With a Retry-After header of so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        tree::set(&mut self.body, &["details", "retryAfterSeconds"], json!(seconds));
        self.retry_after = Some(seconds);
        self
    }

    fn about(self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({"kind": kind});
        for (member, value) in [("group", group), ("name", name)] {
            if !value.is_empty() {
                tree::set(&mut details, &[member], json!(value));
            }
        }
        self.details(details)
    }

    fn about_object(self, kind: &Kind, name: &str) -> Self {
        self.about(&kind.group, &kind.plural, name)
    }

    /// 404 for an object that is not there.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} not found", kind.qualified_resource(), quote(name));
        Self::new(404, "NotFound", message).about_object(kind, name)
    }

    /// 404 for a path nothing answers at.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .details(json!({}))
    }

    /// 409 for a create of what exists.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} already exists", kind.qualified_resource(), quote(name));
        Self::new(409, "AlreadyExists", message).about_object(kind, name)
    }

    /// 409 for a write that rests on something outdated.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {}: {why}",
            kind.qualified_resource(),
            quote(name)
        );
        Self::new(409, "Conflict", message).about_object(kind, name)
    }

    /// 409 for a resourceVersion that is no longer the newest.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403 for what the user may not do, or nobody may.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        Self::forbidden_resource(&kind.group, &kind.plural, name, why)
    }

    /// 403 in terms of a request's group and resource.
    pub fn forbidden_resource(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let qualified = super::resources::qualified(resource, group);
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{qualified} is forbidden: {why}"),
            _ => format!("{qualified} {} is forbidden: {why}", quote(name)),
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// 422 for an object that breaks its kind's rules.
    pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&kind.group, &kind.kind, name, errors)
    }

    /// 422 in terms of a kind that is not in the table, such as `DeleteOptions`.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        let qualified = super::resources::qualified(kind, group);
        let message = format!("{qualified} {} is invalid: {}", quote(name), aggregate(errors));
        let mut status = Self::new(422, "Invalid", message).about(group, kind, name);
        tree::set(&mut status.body, &["details", "causes"], Value::Array(causes));
        status
    }

    /// 400 for a request that can't be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 405 for a verb the resource does not know.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .details(json!({}))
    }

    /// 410 for a resourceVersion or continue token that history no longer reaches.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 415 for a body in a format not taken.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 413 for a request whose body has more bytes than this.
    pub fn too_large(most: usize) -> Self {
        let message = format!("Request entity too large: limit is {most}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 429 as priority and fairness answers.
    pub fn too_many_requests(seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", "too many requests, please try again later")
            .retry_after(seconds)
    }

    /// 500 with a cause.
    pub fn internal(why: &str) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {why}"))
            .details(json!({"causes": [{"message": why}]}))
    }

    /// 503 of a server that is starting or overwhelmed.
    pub fn unavailable(why: &str) -> Self {
        Self::new(503, "ServiceUnavailable", why)
    }

    /// 504 for a resourceVersion of the future.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message)
            .details(json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}))
            .retry_after(1)
    }
}

// === FieldError ===

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    reason: &'static str,
    field: String,
    body: String,
}

impl FieldError {
    fn new(reason: &'static str, field: impl Into<String>, body: String) -> Self {
        Self { reason, field: field.into(), body }
    }

    /// The field must be there.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, with_detail("Required value".to_owned(), detail))
    }

    /// The field has a value it may not have.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            with_detail(format!("Invalid value: {}", shown(value)), detail),
        )
    }

    /// The field may not be set, or not so.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, with_detail("Forbidden".to_owned(), detail))
    }

    /// The value is none of those there are.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| quote(s)).collect();
        let body =
            format!("Unsupported value: {}: supported values: {}", shown(value), list.join(", "));
        Self::new("FieldValueNotSupported", field, body)
    }

    /// The value is longer than it may be.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        Self::new(
            "FieldValueTooLong",
            field,
            format!("Too long: may not be more than {limit} bytes"),
        )
    }

    /// The field and what is wrong, as messages show it.
    pub fn message(&self) -> String {
        format!("{}: {}", self.field, self.body)
    }

    fn cause(&self) -> Value {
        json!({"reason": self.reason, "message": self.body, "field": self.field})
    }
}

fn with_detail(body: String, detail: &str) -> String {
    if detail.is_empty() { body } else { format!("{body}: {detail}") }
}

/// A value as field errors show it: strings quoted, all else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => other.to_string(),
    }
}

/// Several errors as Go's aggregate shows them: one plainly, more in brackets, each once.
fn aggregate(errors: &[FieldError]) -> String {
    let mut messages: Vec<String> = Vec::new();
    for message in errors.iter().map(FieldError::message) {
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    match messages.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
