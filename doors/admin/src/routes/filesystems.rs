//! File systems.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::view::{FilesystemView, FsChange, FsSpec};

use super::{Body, Segment};
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// The file systems.
#[utoipa::path(get, operation_id = "listFilesystems", path = "/filesystems", tag = "filesystems",
    responses((status = 200, body = Vec<FilesystemView>), (status = "default", body = ErrorBody)))]
pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<FilesystemView>>, Failure> {
    Ok(Json(desk.control.filesystems().await?))
}

/// Adds a file system.
#[utoipa::path(post, operation_id = "addFilesystem", path = "/filesystems", tag = "filesystems", request_body = FsSpec,
    responses((status = 201, body = FilesystemView), (status = "default", body = ErrorBody)))]
pub(super) async fn add(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<FsSpec>,
) -> Result<(StatusCode, Json<FilesystemView>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.fs_add(spec).await?)))
}

/// Changes a file system.
#[utoipa::path(patch, operation_id = "updateFilesystem", path = "/filesystems/{name}", tag = "filesystems", request_body = FsChange,
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, body = FilesystemView), (status = "default", body = ErrorBody)))]
pub(super) async fn update(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Body(change): Body<FsChange>,
) -> Result<Json<FilesystemView>, Failure> {
    Ok(Json(desk.control.fs_update(name, change).await?))
}

/// Removes a file system with all that is in it.
#[utoipa::path(delete, operation_id = "removeFilesystem", path = "/filesystems/{name}", tag = "filesystems",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
) -> Result<StatusCode, Failure> {
    desk.control.fs_remove(name).await?;
    Ok(StatusCode::NO_CONTENT)
}
