//! The cluster, its hosts, drives and partitions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::removal::Removal;
use braid_cluster::view::{
    DriveSpec, DriveView, HostSpec, HostView, LostList, PartitionView, SettingsChange, SettingsView, Status,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Asked, Body, Segment};
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// Everything at a glance.
#[utoipa::path(get, path = "/status", tag = "cluster",
    responses((status = 200, body = Status), (status = "default", body = ErrorBody)))]
pub(super) async fn status(State(desk): State<Arc<Desk>>) -> Result<Json<Status>, Failure> {
    Ok(Json(desk.control.status().await?))
}

/// The parts of files that cannot be read because too few shards are left, or because their object is missing or damaged.
#[utoipa::path(get, path = "/lost", tag = "cluster",
    responses((status = 200, body = LostList), (status = "default", body = ErrorBody)))]
pub(super) async fn lost(State(desk): State<Arc<Desk>>) -> Result<Json<LostList>, Failure> {
    Ok(Json(desk.control.lost().await?))
}

/// The hosts.
#[utoipa::path(get, path = "/hosts", tag = "cluster",
    responses((status = 200, body = Vec<HostView>), (status = "default", body = ErrorBody)))]
pub(super) async fn hosts(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<HostView>>, Failure> {
    Ok(Json(desk.control.hosts().await?))
}

/// Takes hosts in that wait for it.
#[utoipa::path(post, operation_id = "addHosts", path = "/hosts", tag = "cluster", request_body = HostSpec,
    responses((status = 201, body = Vec<HostView>), (status = "default", body = ErrorBody)))]
pub(super) async fn add_hosts(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<HostSpec>,
) -> Result<(StatusCode, Json<Vec<HostView>>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.host_add(spec).await?)))
}

/// How to remove a host or a drive.
#[derive(Deserialize, IntoParams)]
pub(super) struct Removing {
    /// Also if the data is less protected then, or has too little room.
    #[serde(default)]
    force: bool,
    /// It never comes back: what only it has is lost. Refused if it answers.
    #[serde(default)]
    abandon: bool,
}

impl Removing {
    fn how(&self) -> Removal {
        match (self.abandon, self.force) {
            (true, _) => Removal::Abandoned,
            (false, true) => Removal::Forced,
            (false, false) => Removal::Safe,
        }
    }
}

/// Begins to empty a host; it is removed when it holds nothing any more.
#[utoipa::path(delete, operation_id = "removeHost", path = "/hosts/{name}", tag = "cluster",
    params(("name" = String, Path, description = "Its name, or its number, such as h3"), Removing),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn remove_host(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Asked(removing): Asked<Removing>,
) -> Result<StatusCode, Failure> {
    desk.control.host_remove(name, removing.how()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The drives, lost ones included.
#[utoipa::path(get, path = "/drives", tag = "cluster",
    responses((status = 200, body = Vec<DriveView>), (status = "default", body = ErrorBody)))]
pub(super) async fn drives(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<DriveView>>, Failure> {
    Ok(Json(desk.control.drives().await?))
}

/// Adds a drive to the host that is asked.
#[utoipa::path(post, operation_id = "addDrive", path = "/drives", tag = "cluster", request_body = DriveSpec,
    responses((status = 201, body = DriveView), (status = "default", body = ErrorBody)))]
pub(super) async fn add_drive(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<DriveSpec>,
) -> Result<(StatusCode, Json<DriveView>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.drive_add(spec).await?)))
}

/// Begins to empty a drive; it is removed when nothing lies on it any more.
#[utoipa::path(delete, operation_id = "removeDrive", path = "/drives/{id}", tag = "cluster",
    params(("id" = u32, Path, description = "Its number"), Removing),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn remove_drive(
    State(desk): State<Arc<Desk>>,
    Segment(id): Segment<u32>,
    Asked(removing): Asked<Removing>,
) -> Result<StatusCode, Failure> {
    desk.control.drive_remove(id, removing.how()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps a drive that is being emptied: what still lies on it stays there, and it gets new data.
#[utoipa::path(post, operation_id = "activateDrive", path = "/drives/{id}/activate", tag = "cluster",
    params(("id" = u32, Path, description = "Its number")),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn activate_drive(
    State(desk): State<Arc<Desk>>,
    Segment(id): Segment<u32>,
) -> Result<StatusCode, Failure> {
    desk.control.drive_activate(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The partitions of the namespace.
#[utoipa::path(get, path = "/partitions", tag = "cluster",
    responses((status = 200, body = Vec<PartitionView>), (status = "default", body = ErrorBody)))]
pub(super) async fn partitions(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<PartitionView>>, Failure> {
    Ok(Json(desk.control.partitions().await?))
}

/// What was set for the whole cluster.
#[utoipa::path(get, path = "/settings", tag = "cluster",
    responses((status = 200, body = SettingsView), (status = "default", body = ErrorBody)))]
pub(super) async fn settings(State(desk): State<Arc<Desk>>) -> Result<Json<SettingsView>, Failure> {
    Ok(Json(desk.control.settings().await?))
}

/// Changes what is set for the whole cluster.
#[utoipa::path(patch, operation_id = "updateSettings", path = "/settings", tag = "cluster", request_body = SettingsChange,
    responses((status = 200, body = SettingsView), (status = "default", body = ErrorBody)))]
pub(super) async fn update_settings(
    State(desk): State<Arc<Desk>>,
    Body(change): Body<SettingsChange>,
) -> Result<Json<SettingsView>, Failure> {
    Ok(Json(desk.control.settings_update(change).await?))
}
