//! The door's table: from the kind of an error to an HTTP status and a word, and back for the command line.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use braid_base::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an answer other than 2xx carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// A word for programs, such as `not_found`.
    pub kind: String,
    /// A sentence for people: expected, found, what to do.
    pub message: String,
}

/// Every kind that an administrator can meet; what is not here is `io`, 500.
const TABLE: [(ErrorKind, &str, u16); 23] = [
    (ErrorKind::NotFound, "not_found", 404),
    (ErrorKind::Exists, "exists", 409),
    (ErrorKind::NotDirectory, "not_directory", 400),
    (ErrorKind::NotEmpty, "not_empty", 409),
    (ErrorKind::Invalid, "invalid", 400),
    (ErrorKind::NotPermitted, "not_permitted", 403),
    (ErrorKind::AccessDenied, "access_denied", 403),
    (ErrorKind::NoSpace, "no_space", 507),
    (ErrorKind::Quota, "quota", 507),
    (ErrorKind::NameTooLong, "name_too_long", 400),
    (ErrorKind::Range, "range", 400),
    (ErrorKind::Busy, "busy", 503),
    (ErrorKind::Stale, "stale", 409),
    (ErrorKind::Io, "io", 500),
    (ErrorKind::Corrupt, "corrupt", 500),
    (ErrorKind::Unsupported, "unsupported", 501),
    (ErrorKind::TimedOut, "timed_out", 504),
    (ErrorKind::ReadOnly, "read_only", 409),
    (ErrorKind::Stopped, "stopped", 503),
    (ErrorKind::Refused, "refused", 409),
    (ErrorKind::Moved, "moved", 503),
    (ErrorKind::SessionLost, "session_lost", 503),
    (ErrorKind::Held, "held", 503),
];

impl ErrorBody {
    /// The body for `error`.
    pub fn of(error: &Error) -> Self {
        Self { kind: word(error.kind()).to_owned(), message: error.message().to_owned() }
    }

    /// The error again, on the other side of the wire.
    pub fn into_error(self) -> Error {
        let found = TABLE.iter().find(|(_, word, _)| *word == self.kind);
        Error::new(found.map_or(ErrorKind::Io, |(kind, _, _)| *kind), self.message)
    }
}

/// The word for `kind`.
fn word(kind: ErrorKind) -> &'static str {
    TABLE.iter().find(|entry| entry.0 == kind).map_or("io", |entry| entry.1)
}

fn status(kind: ErrorKind) -> StatusCode {
    let code = TABLE.iter().find(|entry| entry.0 == kind).map_or(500, |entry| entry.2);
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// An error on its way out of a handler.
pub(crate) struct Failure(pub Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (status(self.0.kind()), Json(ErrorBody::of(&self.0))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorBody, TABLE, status};
    use braid_base::Error;

    #[test]
    fn kinds_survive_the_wire() {
        for (kind, _, code) in TABLE {
            let error = Error::new(kind, "a sentence");
            assert_eq!(ErrorBody::of(&error).into_error(), error);
            assert_eq!(status(kind).as_u16(), code);
        }
    }
}
