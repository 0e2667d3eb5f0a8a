//! Events.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use braid_cluster::events;
use braid_cluster::view::events::{EventQuery, EventSpec, EventTypeView, EventsView};

use super::{Asked, Body};
use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// What happened, as the hosts have kept it.
#[utoipa::path(get, operation_id = "listEvents", path = "/events", tag = "events", params(EventQuery),
    responses((status = 200, body = EventsView), (status = "default", body = ErrorBody)))]
pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    Asked(query): Asked<EventQuery>,
) -> Result<Json<EventsView>, Failure> {
    Ok(Json(desk.control.events(query).await?))
}

/// The types of events that there are.
#[utoipa::path(get, operation_id = "listEventTypes", path = "/events/types", tag = "events",
    responses((status = 200, body = Vec<EventTypeView>), (status = "default", body = ErrorBody)))]
pub(super) async fn types() -> Json<Vec<EventTypeView>> {
    Json(events::known())
}

/// Tells an event of type `Custom`; the host that is asked keeps it.
#[utoipa::path(post, operation_id = "triggerEvent", path = "/events", tag = "events", request_body = EventSpec,
    responses((status = 204), (status = "default", body = ErrorBody)))]
pub(super) async fn trigger(State(desk): State<Arc<Desk>>, Body(spec): Body<EventSpec>) -> Result<StatusCode, Failure> {
    desk.control.event_trigger(spec).await?;
    Ok(StatusCode::NO_CONTENT)
}
