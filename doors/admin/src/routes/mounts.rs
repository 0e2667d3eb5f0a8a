//! Mounts of this process.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::view::{MountSpec, MountView};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Asked, Body};
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// Which mount.
#[derive(Deserialize, IntoParams)]
pub(super) struct Which {
    /// The directory it is mounted on, absolute.
    path: String,
}

/// The mounts.
#[utoipa::path(get, operation_id = "listMounts", path = "/mounts", tag = "mounts",
    responses((status = 200, body = Vec<MountView>), (status = "default", body = ErrorBody)))]
pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<MountView>>, Failure> {
    Ok(Json(desk.control.mounts().await?))
}

/// Mounts a file system.
#[utoipa::path(post, operation_id = "addMount", path = "/mounts", tag = "mounts", request_body = MountSpec,
    responses((status = 201, body = MountView), (status = "default", body = ErrorBody)))]
pub(super) async fn add(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<MountSpec>,
) -> Result<(StatusCode, Json<MountView>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.mount(spec).await?)))
}

/// Takes a mount away; 409, naming who holds it, while it is in use.
#[utoipa::path(delete, operation_id = "removeMount", path = "/mounts", tag = "mounts", params(Which),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn remove(State(desk): State<Arc<Desk>>, Asked(which): Asked<Which>) -> Result<StatusCode, Failure> {
    desk.control.umount(which.path).await?;
    Ok(StatusCode::NO_CONTENT)
}
