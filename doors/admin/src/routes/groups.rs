//! Groups of file systems.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::view::{GroupSpec, GroupView};

use super::{Body, Segment};
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// The groups.
#[utoipa::path(get, operation_id = "listGroups", path = "/groups", tag = "groups",
    responses((status = 200, body = Vec<GroupView>), (status = "default", body = ErrorBody)))]
pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<GroupView>>, Failure> {
    Ok(Json(desk.control.groups().await?))
}

/// Adds a group.
#[utoipa::path(post, operation_id = "addGroup", path = "/groups", tag = "groups", request_body = GroupSpec,
    responses((status = 201, body = GroupView), (status = "default", body = ErrorBody)))]
pub(super) async fn add(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<GroupSpec>,
) -> Result<(StatusCode, Json<GroupView>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.group_add(spec).await?)))
}

/// Changes a group; the name in the path counts, not the one in the body.
#[utoipa::path(patch, operation_id = "updateGroup", path = "/groups/{name}", tag = "groups", request_body = GroupSpec,
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, body = GroupView), (status = "default", body = ErrorBody)))]
pub(super) async fn update(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Body(spec): Body<GroupSpec>,
) -> Result<Json<GroupView>, Failure> {
    Ok(Json(desk.control.group_update(GroupSpec { name, ..spec }).await?))
}

/// Removes a group that no file system is in.
#[utoipa::path(delete, operation_id = "removeGroup", path = "/groups/{name}", tag = "groups",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
) -> Result<StatusCode, Failure> {
    desk.control.group_remove(name).await?;
    Ok(StatusCode::NO_CONTENT)
}
