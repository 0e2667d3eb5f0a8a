//! The cluster, its hosts, drives and partitions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use braid_cluster::view::{DriveView, HostView, PartitionView, Status};

use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// Everything at a glance.
#[utoipa::path(get, path = "/status", tag = "cluster",
    responses((status = 200, body = Status), (status = "default", body = ErrorBody)))]
pub(super) async fn status(State(desk): State<Arc<Desk>>) -> Result<Json<Status>, Failure> {
    Ok(Json(desk.control.status().await?))
}

/// The hosts.
#[utoipa::path(get, path = "/hosts", tag = "cluster",
    responses((status = 200, body = Vec<HostView>), (status = "default", body = ErrorBody)))]
pub(super) async fn hosts(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<HostView>>, Failure> {
    Ok(Json(desk.control.hosts().await?))
}

/// The drives, lost ones included.
#[utoipa::path(get, path = "/drives", tag = "cluster",
    responses((status = 200, body = Vec<DriveView>), (status = "default", body = ErrorBody)))]
pub(super) async fn drives(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<DriveView>>, Failure> {
    Ok(Json(desk.control.drives().await?))
}

/// The partitions of the namespace.
#[utoipa::path(get, path = "/partitions", tag = "cluster",
    responses((status = 200, body = Vec<PartitionView>), (status = "default", body = ErrorBody)))]
pub(super) async fn partitions(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<PartitionView>>, Failure> {
    Ok(Json(desk.control.partitions().await?))
}
