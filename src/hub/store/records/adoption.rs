//! How a cluster is adopted, as the records have it.

use serde::Deserialize;

use crate::wire::api::{AccessLevel, AdoptionChanges, AdoptionOptions, ScopeOptions};

/// What people ask for is refused where it says more than is known. A record may be of a newer build, beside which this one runs
/// or whose place it has taken; what that says beyond is left out, for without the record all clusters would be lost.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    image: Option<String>,
    access: Option<AccessLevel>,
    scope: Option<StoredScope>,
    token_ttl: Option<u32>,
    image_pull_secret: Option<String>,
    https_proxy: Option<String>,
    no_proxy: Option<String>,
    engine_namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredScope {
    namespaces: Vec<String>,
    strict: bool,
}

pub(in crate::hub::store) fn adoption(text: &str) -> serde_json::Result<AdoptionOptions> {
    let Stored {
        image,
        access,
        scope,
        token_ttl,
        image_pull_secret,
        https_proxy,
        no_proxy,
        engine_namespace,
    } = serde_json::from_str(text)?;
    let scope = scope.map(|StoredScope { namespaces, strict }| ScopeOptions { namespaces, strict });
    let said = AdoptionChanges {
        image,
        access,
        scope,
        token_ttl,
        image_pull_secret,
        https_proxy,
        no_proxy,
        engine_namespace,
    };
    Ok(said.of(&AdoptionOptions::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_as_it_was() {
        let whole = AdoptionOptions {
            image: "agent:1".to_owned(),
            access: AccessLevel::View,
            scope: Some(ScopeOptions {
                namespaces: vec!["shop".to_owned()],
                strict: true,
            }),
            token_ttl: 300,
            image_pull_secret: "regcred".to_owned(),
            https_proxy: "http://proxy.invalid".to_owned(),
            no_proxy: "10.0.0.0/8".to_owned(),
            engine_namespace: "gitops".to_owned(),
        };
        for options in [AdoptionOptions::default(), whole] {
            let text = serde_json::to_string(&options).unwrap();
            assert_eq!(adoption(&text).unwrap(), options);
        }
        assert_eq!(adoption("{}").unwrap(), AdoptionOptions::default());
    }

    #[test]
    fn what_a_newer_build_says_beyond_is_left_out() {
        let text = r#"{"image":"agent:2","later":1,"scope":{"namespaces":["shop"],"later":[]}}"#;
        let known = AdoptionOptions {
            image: "agent:2".to_owned(),
            scope: Some(ScopeOptions {
                namespaces: vec!["shop".to_owned()],
                strict: false,
            }),
            ..AdoptionOptions::default()
        };
        assert_eq!(adoption(text).unwrap(), known);
    }
}
