//! `/openapi.json`: OpenAPI 3.1, made from the table of the operations and the samples of their bodies.
//!
//! `wire` may not know utoipa, so the bodies are described by samples: a test reads each sample as the type
//! that the handlers use, and another asks the running router for every operation of the table.

use std::sync::{Arc, OnceLock};

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use crate::hub::Hub;

mod operations;
pub mod samples;

pub use operations::{Caller, Operation, Repeat, operations, repeat};

pub fn routes() -> Router<Arc<Hub>> {
    Router::new().route("/openapi.json", get(async || Json(document())))
}

/// The document, made once.
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(value)
}

fn value() -> Value {
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = describe(operation);
    }
    let schemas: Map<String, Value> = samples::all()
        .into_iter()
        .map(|(name, sample)| (name.to_owned(), schema(&sample)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Linesman hub",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "signature": { "type": "apiKey", "in": "header", "name": "Linesman-Signature" },
            },
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let mut described = json!({
        "summary": operation.summary,
        "responses": {
            "200": answer(operation),
            "default": {
                "description": "An RFC 9457 problem",
                "content": { "application/problem+json": { "schema": reference("Problem") } },
            },
        },
    });
    let mut parameters: Vec<Value> = operation.path.split('/').filter_map(parameter).collect();
    let changes = matches!(operation.method, "put" | "patch" | "delete");
    if changes && operation.caller == Caller::User {
        parameters.push(json!({
            "name": "If-Match", "in": "header", "required": true, "schema": { "type": "string" },
            "description": "The ETag of what is changed as it was seen, or * for whatever it is now",
        }));
    }
    if matches!(operation.repeat(), Some(Repeat::Answered | Repeat::Known)) {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false, "schema": { "type": "string", "maxLength": 200 },
            "description": "The same call by the same key has one effect, for 24 hours; another call by it is refused",
        }));
    }
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if !operation.body.is_empty() {
        described["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": reference(operation.body) } },
        });
    }
    match operation.caller {
        Caller::Anyone => {}
        Caller::User => described["security"] = json!([{ "token": [] }]),
        Caller::Agent => described["security"] = json!([{ "signature": [] }]),
    }
    described
}

fn parameter(segment: &str) -> Option<Value> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    Some(json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
}

fn answer(operation: &Operation) -> Value {
    if operation.answer.is_empty() {
        return json!({ "description": operation.summary });
    }
    let schema = match operation.answer.strip_prefix("[]") {
        Some(item) => json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": { "type": "array", "items": reference(item) },
                "cursor": { "type": "string" },
            },
        }),
        None => reference(operation.answer),
    };
    json!({
        "description": operation.summary,
        "content": { "application/json": { "schema": schema } },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The schema of which `sample` is an example.
fn schema(sample: &Value) -> Value {
    match sample {
        Value::Null => json!({ "type": "null" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(_) => json!({ "type": "integer" }),
        Value::String(text) => json!({ "type": "string", "examples": [text] }),
        Value::Array(items) => {
            json!({ "type": "array", "items": items.first().map_or_else(|| json!({ "type": "string" }), schema) })
        }
        Value::Object(map) => {
            let properties: Map<String, Value> = map
                .iter()
                .map(|(key, value)| (key.clone(), schema(value)))
                .collect();
            json!({ "type": "object", "properties": properties })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_openapi_3_1_and_its_references_exist() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        serde_json::from_value::<utoipa::openapi::OpenApi>(document.clone()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for operation in operations() {
            for name in [operation.body, operation.answer.trim_start_matches("[]")] {
                assert!(name.is_empty() || schemas.contains_key(name), "{name}");
            }
            assert!(document["paths"][operation.path][operation.method].is_object());
        }
    }
}
