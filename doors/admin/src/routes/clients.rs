//! Clients in processes of their own.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::view::{ClientSpec, ClientView};

use super::Body;
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// Makes the number of a new client; it then speaks to the socket itself.
#[utoipa::path(post, operation_id = "addClient", path = "/clients", tag = "mounts", request_body = ClientSpec,
    responses((status = 201, body = ClientView), (status = "default", body = ErrorBody)))]
pub(super) async fn add(
    State(desk): State<Arc<Desk>>,
    Body(spec): Body<ClientSpec>,
) -> Result<(StatusCode, Json<ClientView>), Failure> {
    Ok((StatusCode::CREATED, Json(desk.control.client(spec).await?)))
}
