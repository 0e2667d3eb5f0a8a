//! The process: its numbers and its end.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};
use crate::metrics;

/// Asks the process to stop cleanly; it does so after the answer. Watch its pid for the end.
#[utoipa::path(post, path = "/shutdown", tag = "process",
    responses((status = 202), (status = "default", body = ErrorBody)))]
pub(super) async fn shutdown(State(desk): State<Arc<Desk>>) -> StatusCode {
    desk.stop.notify_one();
    StatusCode::ACCEPTED
}

/// Counters and gauges as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "process",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = ErrorBody)))]
pub(super) async fn metrics(State(desk): State<Arc<Desk>>) -> Result<impl IntoResponse, Failure> {
    let (status, samples) = (desk.control.status().await?, desk.control.samples().await?);
    let text = metrics::render(&status, samples);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
