//! A name that the hub does not have, and those that may have been meant.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use strsim::osa_distance;

use super::{Call, Client, Error};
use crate::wire::api::Page;

/// The refusal waits no longer for a help.
const PATIENCE: Duration = Duration::from_secs(3);
/// One page of names, and as many as are worth naming.
const LOOKED_AT: &str = "500";
const NAMED: usize = 3;

/// What has names that people type, as the hub's paths and refusals call it.
const KINDS: [(&str, &str); 2] = [("clusters", "cluster"), ("users", "user")];

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Client {
    /// The refusal of a name that is not there, with those that are nearly the same.
    pub(super) async fn suggesting(&self, call: &Call<'_>, mut error: Error) -> Error {
        if let Error::Refused { problem, .. } = &mut error
            && problem.status == StatusCode::NOT_FOUND
            && let Some((collection, name)) = misses(&problem.detail)
        {
            let meant = near(&name, &self.names(call, collection).await);
            if !meant.is_empty() {
                problem.next = format!("did you mean {}? {}", meant.join(" or "), problem.next);
            }
        }
        error
    }

    /// None where the caller may not list them, or nobody answers in time.
    async fn names(&self, call: &Call<'_>, collection: &str) -> Vec<String> {
        let list = Call {
            operation: call.operation,
            method: Method::GET,
            url: self.url(&["v1", collection], &[("limit", LOOKED_AT.to_owned())]),
            headers: HeaderMap::new(),
            body: None,
            timeout: PATIENCE,
            repeatable: false,
        };
        let Ok(body) = self.send_once(&list).await else {
            return Vec::new();
        };
        let page = serde_json::from_slice::<Page<Named>>(&body);
        let names = page.into_iter().flat_map(|page| page.items);
        names.map(|item| item.name).collect()
    }
}

/// The collection and the name, where the refusal is of a name.
fn misses(detail: &str) -> Option<(&'static str, String)> {
    KINDS.into_iter().find_map(|(collection, kind)| {
        let name = detail.strip_prefix(&format!("there is no {kind} '"))?;
        Some((collection, name.strip_suffix('\'')?.to_owned()))
    })
}

/// Those that a slip of the keyboard or two leads to, the nearest first.
fn near(name: &str, all: &[String]) -> Vec<String> {
    let most = (name.chars().count() / 3).clamp(1, 2);
    let mut found: Vec<(usize, &String)> = all
        .iter()
        .map(|known| (osa_distance(name, known), known))
        .filter(|(slips, _)| *slips <= most)
        .collect();
    found.sort();
    let found = found.into_iter().take(NAMED);
    found.map(|(_, known)| known.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first_and_far_ones_not_at_all() {
        let all = ["us1", "eu1", "eu2", "eu3", "eu4", "production"].map(str::to_owned);
        assert_eq!(near("eu1", &all)[..1], ["eu1"]);
        assert_eq!(near("eu9", &all), ["eu1", "eu2", "eu3"]);
        for typed in ["prodution", "porduction", "productionn", "producition"] {
            assert_eq!(near(typed, &all), ["production"], "{typed}");
        }
        assert_eq!(near("", &all), [""; 0]);
        assert_eq!(near("staging", &all), [""; 0]);
    }

    #[test]
    fn only_a_refused_name_is_looked_for() {
        let miss = |collection, name: &str| Some((collection, name.to_owned()));
        assert_eq!(misses("there is no cluster 'eu9'"), miss("clusters", "eu9"));
        assert_eq!(misses("there is no user 'adda'"), miss("users", "adda"));
        assert_eq!(misses("there is no token 'x'"), None);
        assert_eq!(misses("cluster eu1 has no key"), None);
    }
}
