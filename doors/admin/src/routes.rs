//! The paths, one file per noun, and the document that describes them.

mod clients;
mod cluster;
mod events;
mod filesystems;
mod groups;
mod mounts;
mod process;
mod stores;

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Json, Router};
use braid_base::{Error, ErrorKind};
use serde::de::DeserializeOwned;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::desk::Desk;
use crate::failure::{ErrorBody, Failure};

/// Where all but metrics lives.
const ROOT: &str = "/api/v1";

#[derive(OpenApi)]
#[openapi(
    info(title = "Braid", description = "Administration of a Braid cluster: each command of `braid` is one call here."),
    components(schemas(ErrorBody)),
    security(("token" = [])),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// Every route.
pub(crate) fn all() -> Router<Arc<Desk>> {
    let api = OpenApiRouter::new()
        .routes(routes!(cluster::status))
        .routes(routes!(cluster::lost))
        .routes(routes!(cluster::hosts, cluster::add_hosts))
        .routes(routes!(cluster::remove_host))
        .routes(routes!(cluster::drives, cluster::add_drive))
        .routes(routes!(cluster::remove_drive))
        .routes(routes!(cluster::activate_drive))
        .routes(routes!(cluster::settings, cluster::update_settings))
        .routes(routes!(cluster::partitions))
        .routes(routes!(filesystems::list, filesystems::add))
        .routes(routes!(filesystems::update, filesystems::remove))
        .routes(routes!(stores::attach))
        .routes(routes!(stores::detach))
        .routes(routes!(stores::list, stores::add))
        .routes(routes!(stores::update, stores::remove))
        .routes(routes!(stores::operations))
        .routes(routes!(stores::audit, stores::audited))
        .routes(routes!(stores::holdings))
        .routes(routes!(groups::list, groups::add))
        .routes(routes!(groups::update, groups::remove))
        .routes(routes!(mounts::list, mounts::add, mounts::remove))
        .routes(routes!(clients::add))
        .routes(routes!(events::list, events::trigger))
        .routes(routes!(events::types))
        .routes(routes!(process::shutdown));
    let whole = OpenApiRouter::with_openapi(Document::openapi()).nest(ROOT, api).routes(routes!(process::metrics));
    let (router, document) = whole.split_for_parts();
    router.route("/api/v1/openapi.json", get(async move || Json(document)))
}

/// A JSON body whose mistakes are told as every error is.
pub(crate) struct Body<T>(pub T);

/// A part of the path, likewise.
pub(crate) struct Segment<T>(pub T);

/// The parameters behind the question mark, likewise.
pub(crate) struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let read = Json::<T>::from_request(request, state).await;
        read.map(|Json(value)| Self(value)).map_err(|error: JsonRejection| mistake(error.body_text()))
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segment<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(value)| Self(value)).map_err(|error: PathRejection| mistake(error.body_text()))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(value)| Self(value)).map_err(|error: QueryRejection| mistake(error.body_text()))
    }
}

fn mistake(text: String) -> Failure {
    Failure(Error::new(ErrorKind::Invalid, text))
}
