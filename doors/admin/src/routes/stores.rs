//! Object stores, and which file systems use them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::view::FilesystemView;
use braid_cluster::view::stores::{
    AttachSpec, AuditSpec, AuditView, HoldingsView, ObjectStoreChange, ObjectStoreDone, ObjectStoreSpec,
    ObjectStoreView, OperationsView,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Asked, Body, Segment};
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// Of which file system.
#[derive(Deserialize, IntoParams)]
pub(super) struct Whose {
    /// Its name; all if none is given.
    filesystem: Option<String>,
}

/// Whether what waits in an object store to be removed may be left there.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default)]
pub(super) struct Forced {
    /// Objects that the store does not remove are left there, and forgotten.
    force: bool,
}

/// The object stores, as the hosts see them together. Secrets are not shown.
#[utoipa::path(get, operation_id = "listObjectStores", path = "/object-stores", tag = "object stores",
    responses((status = 200, body = Vec<ObjectStoreView>), (status = "default", body = ErrorBody)))]
pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Result<Json<Vec<ObjectStoreView>>, Failure> {
    Ok(Json(desk.control.stores().await?))
}

/// What the hosts do at an object store, and what they did last.
#[utoipa::path(get, operation_id = "listObjectStoreOperations", path = "/object-stores/{name}/operations",
    tag = "object stores", params(("name" = String, Path, description = "Its name")),
    responses((status = 200, body = OperationsView), (status = "default", body = ErrorBody)))]
pub(super) async fn operations(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
) -> Result<Json<OperationsView>, Failure> {
    Ok(Json(desk.control.store_operations(name).await?))
}

/// Begins to compare what lies in an object store with what the cluster knows of it.
#[utoipa::path(post, operation_id = "auditObjectStore", path = "/object-stores/{name}/audit", tag = "object stores",
    request_body = AuditSpec, params(("name" = String, Path, description = "Its name")),
    responses((status = 202, body = AuditView), (status = "default", body = ErrorBody)))]
pub(super) async fn audit(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Body(spec): Body<AuditSpec>,
) -> Result<(StatusCode, Json<AuditView>), Failure> {
    Ok((StatusCode::ACCEPTED, Json(desk.control.store_audit(name, spec).await?)))
}

/// What the last audit of an object store on the host that is asked has found so far.
#[utoipa::path(get, operation_id = "getObjectStoreAudit", path = "/object-stores/{name}/audit", tag = "object stores",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, body = AuditView), (status = "default", body = ErrorBody)))]
pub(super) async fn audited(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
) -> Result<Json<AuditView>, Failure> {
    Ok(Json(desk.control.store_audited(name).await?))
}

/// What file systems hold in object stores, and how much of it is in use.
#[utoipa::path(get, operation_id = "listHoldings", path = "/holdings", tag = "object stores", params(Whose),
    responses((status = 200, body = HoldingsView), (status = "default", body = ErrorBody)))]
pub(super) async fn holdings(
    State(desk): State<Arc<Desk>>,
    Asked(whose): Asked<Whose>,
) -> Result<Json<HoldingsView>, Failure> {
    Ok(Json(desk.control.holdings(whose.filesystem).await?))
}

/// Adds an object store after it was tried; in a dry run it is tried only, and the status is 200.
#[utoipa::path(post, operation_id = "addObjectStore", path = "/object-stores", tag = "object stores",
    request_body = ObjectStoreSpec,
    responses((status = 201, body = ObjectStoreDone), (status = 200, body = ObjectStoreDone),
        (status = "default", body = ErrorBody)))]
pub(super) async fn add(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<ObjectStoreSpec>,
) -> Result<(StatusCode, Json<ObjectStoreDone>), Failure> {
    let done = desk.control.store_add(spec).await?;
    Ok((if done.recorded { StatusCode::CREATED } else { StatusCode::OK }, Json(done)))
}

/// Changes an object store; it is tried first if it will be reached in another way.
#[utoipa::path(patch, operation_id = "updateObjectStore", path = "/object-stores/{name}", tag = "object stores",
    request_body = ObjectStoreChange, params(("name" = String, Path, description = "Its name")),
    responses((status = 200, body = ObjectStoreDone), (status = "default", body = ErrorBody)))]
pub(super) async fn update(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Body(change): Body<ObjectStoreChange>,
) -> Result<Json<ObjectStoreDone>, Failure> {
    Ok(Json(desk.control.store_update(name, change).await?))
}

/// Removes an object store that no file system uses. What lies in it stays. Refused while objects of removed file systems wait
/// there to be removed.
#[utoipa::path(delete, operation_id = "removeObjectStore", path = "/object-stores/{name}", tag = "object stores",
    params(("name" = String, Path, description = "Its name"), Forced),
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Asked(forced): Asked<Forced>,
) -> Result<StatusCode, Failure> {
    desk.control.store_remove(name, forced.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Attaches an object store to a file system, or makes one that is attached and only read the writable one. With a second
/// writable one the first is only read from then on.
#[utoipa::path(post, operation_id = "attachObjectStore", path = "/filesystems/{name}/stores", tag = "object stores",
    request_body = AttachSpec, params(("name" = String, Path, description = "Name of the file system")),
    responses((status = 201, body = FilesystemView), (status = "default", body = ErrorBody)))]
pub(super) async fn attach(
    State(desk): State<Arc<Desk>>,
    Segment(name): Segment<String>,
    Body(spec): Body<AttachSpec>,
) -> Result<(StatusCode, Json<FilesystemView>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.store_attach(name, spec).await?)))
}

/// Begins to detach an object store from a file system; it is gone from there when nothing lies in it any more.
#[utoipa::path(delete, operation_id = "detachObjectStore", path = "/filesystems/{name}/stores/{store}",
    tag = "object stores",
    params(("name" = String, Path, description = "Name of the file system"),
        ("store" = String, Path, description = "Name of the object store"), Forced),
    responses((status = 202, body = FilesystemView), (status = "default", body = ErrorBody)))]
pub(super) async fn detach(
    State(desk): State<Arc<Desk>>,
    Segment((name, store)): Segment<(String, String)>,
    Asked(forced): Asked<Forced>,
) -> Result<(StatusCode, Json<FilesystemView>), Failure> {
    Ok((StatusCode::ACCEPTED, Json(desk.control.store_detach(name, store, forced.force).await?)))
}
