//! Samples of what is said of engines.

use serde_json::{Value, json};

use super::{TIME, digest};

pub(super) fn all() -> Vec<(&'static str, Value)> {
    vec![
        ("BundleView", bundle()),
        (
            "EngineRequest",
            json!({ "engine": "flux", "version": "2.9.5", "bundle": digest(), "within": 300,
                    "replace": true, "path": "clusters/eu1" }),
        ),
        (
            "EngineView",
            json!({ "engine": "flux", "version": "2.9.5", "bundle": digest(), "change": 2, "path": "clusters/eu1" }),
        ),
        (
            "RegistryRequest",
            json!({ "registry": "registry.example.org:5000/mirror", "pullSecret": "regcred" }),
        ),
        (
            "RegistryView",
            json!({ "registry": "registry.example.org:5000/mirror", "pullSecret": "regcred", "change": 3, "own": true }),
        ),
    ]
}

fn bundle() -> Value {
    json!({
        "digest": digest(), "engine": "flux", "version": "2.9.5", "objects": 32,
        "images": ["source-controller:v1.8.0"], "size": 37_000, "kubernetes": "1.33", "importedAt": TIME,
        "origin": { "source": "https://mirror.example/v2.9.5/install.yaml", "verifiedBy": "--sha256" },
    })
}
