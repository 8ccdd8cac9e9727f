//! Whence the images of engines come.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use crate::clock;
use crate::hub::adoption::values::is_secret;
use crate::hub::api::clusters::{find, pause};
use crate::hub::api::problem::{Problem, Slug};
use crate::hub::api::{Caller, UserBody, precondition};
use crate::hub::auth::Role;
use crate::hub::store::{Cluster, Images, WITHIN};
use crate::hub::{Hub, assignment};
use crate::wire::api::{RegistryRequest, RegistryView};

/// Whence a cluster's engine gets its images.
pub(in crate::hub::api::clusters) async fn registry(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(asked): UserBody<RegistryRequest>,
) -> Result<Json<RegistryView>, Problem> {
    caller
        .require(&hub, Role::Operator, "engine.mirror")
        .await?;
    let what = format!("cluster {name}");
    let set = precondition::written((&hub, &caller), &what, || async {
        let mut cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        let images = wished(&asked)?;
        let word = images
            .as_ref()
            .map_or_else(|| "default".to_owned(), ToString::to_string);
        caller
            .record(&hub, "engine.mirror", Some(&name), &word)
            .await?;
        let change = hub
            .store
            .set_registry(cluster.revision(), images.clone(), clock::now());
        let Some(change) = change.await? else {
            return Ok(None);
        };
        cluster.engine_change = change;
        cluster.engine_within = WITHIN;
        (cluster.image_registry, cluster.image_pull_secret) = match images {
            Some(images) => (Some(images.registry), images.pull_secret),
            None => (None, None),
        };
        pause::announce(&hub, &cluster).await?;
        in_force(&hub, &cluster).await.map(Some)
    });
    set.await.map(Json)
}

/// Whence they come now.
pub(in crate::hub::api::clusters) async fn registry_shown(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<(precondition::Tag, Json<RegistryView>), Problem> {
    caller.require(&hub, Role::Viewer, "cluster.show").await?;
    let cluster = find(&hub, &name).await?;
    let view = in_force(&hub, &cluster).await?;
    Ok((precondition::tag(cluster.rev), Json(view)))
}

async fn in_force(hub: &Hub, cluster: &Cluster) -> Result<RegistryView, Problem> {
    let images = assignment::images(hub, cluster).await?;
    Ok(RegistryView {
        registry: images.registry,
        pull_secret: images.pull_secret,
        change: cluster.engine_change,
        own: cluster.image_registry.is_some(),
    })
}

/// The same for all clusters that have no registry of their own.
pub(in crate::hub::api::clusters) async fn default_registry(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    headers: HeaderMap,
    UserBody(asked): UserBody<RegistryRequest>,
) -> Result<Json<RegistryView>, Problem> {
    caller
        .require(&hub, Role::Operator, "engine.mirror")
        .await?;
    let what = "the image registry of all clusters";
    let set = precondition::written((&hub, &caller), what, || async {
        let before = hub.store.default_registry().await?;
        precondition::matches_value(&headers, &word_of(before.as_ref()), what)?;
        let images = wished(&asked)?.filter(|images| *images != Images::default());
        let word = images
            .as_ref()
            .map_or_else(|| "none".to_owned(), ToString::to_string);
        caller.record(&hub, "engine.mirror", None, &word).await?;
        let set = hub.store.set_default_registry(before, images.clone());
        Ok(set.await?.then_some(images))
    });
    let images = set.await?;
    // It is in force by now, and to tell thousands of agents takes longer than whoever asked can wait.
    let telling = hub.clone();
    hub.work.spawn(async move {
        let all = tell_all(&telling);
        telling.stop.run_until_cancelled(all).await;
    });
    Ok(Json(of_all(images)))
}

/// Tells each agent that listens of its assignment; those that do not listen now hear it when they begin to.
async fn tell_all(hub: &Hub) {
    for name in hub.orders.listening() {
        let told = async {
            if let Some(cluster) = hub.store.cluster(&name).await? {
                pause::announce(hub, &cluster).await?;
            }
            Ok::<(), Problem>(())
        };
        if let Err(problem) = told.await {
            tracing::error!(cluster = %name, error = problem.detail, "tell of another image registry");
        }
    }
}

/// What the hub says for all of them.
pub(in crate::hub::api::clusters) async fn default_registry_shown(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
) -> Result<(precondition::Tag, Json<RegistryView>), Problem> {
    caller.require(&hub, Role::Viewer, "cluster.show").await?;
    let images = hub.store.default_registry().await?;
    let tag = precondition::tag_of(&word_of(images.as_ref()));
    Ok((tag, Json(of_all(images))))
}

/// By which a change of it is known.
fn word_of(images: Option<&Images>) -> String {
    images.map_or_else(String::new, ToString::to_string)
}

fn of_all(images: Option<Images>) -> RegistryView {
    let own = images.is_some();
    let Images {
        registry,
        pull_secret,
    } = images.unwrap_or_default();
    RegistryView {
        registry,
        pull_secret,
        change: 0,
        own,
    }
}

/// What a request says; None = nothing of its own.
fn wished(asked: &RegistryRequest) -> Result<Option<Images>, Problem> {
    let pull_secret = asked.pull_secret.clone();
    let Some(registry) = asked.registry.clone() else {
        if pull_secret.is_none() {
            return Ok(None);
        }
        let next = "give 'registry' with it: empty for those that the images name";
        return Err(Problem::new(
            Slug::BadRequest,
            "a pull secret goes with a registry",
            next,
        ));
    };
    if let Some(wrong) = pull_secret.as_deref().filter(|name| !is_secret(name)) {
        let text = format!(
            "'{}' is not the name of a Secret",
            crate::hub::cut(wrong, 60)
        );
        let next = "give the name of a Secret in the engine's namespace of each cluster: a-z, 0-9, '-' and '.'";
        return Err(Problem::new(Slug::BadRequest, text, next));
    }
    let registry = checked(registry)?;
    Ok(Some(Images {
        registry,
        pull_secret,
    }))
}

/// `HOST[:PORT][/PATH]` in the letters of image references (distribution/reference), or empty.
fn checked(registry: String) -> Result<String, Problem> {
    let (host, path) = match registry.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (registry.as_str(), None),
    };
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let word = |text: &str, more: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(c);
        !text.is_empty() && text.chars().all(fits)
    };
    let is_host = word(&name.to_ascii_lowercase(), ".-")
        && (name.contains('.') || port.is_some() || name == "localhost");
    let is_port = port.is_none_or(|p| p.parse::<u16>().is_ok_and(|p| p > 0));
    let is_path = path.is_none_or(|p| p.split('/').all(|part| word(part, "._-")));
    if registry.is_empty() || registry.len() <= 200 && is_host && is_port && is_path {
        return Ok(registry);
    }
    let text = format!("'{}' is not a registry", crate::hub::cut(&registry, 60));
    let next =
        "give HOST[:PORT][/PATH], such as registry.example.org:5000/mirror, without a scheme";
    Err(Problem::new(Slug::BadRequest, text, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_secret_goes_with_a_registry_or_with_the_images_own() {
        let wished = |registry: Option<&str>, pull_secret: Option<&str>| {
            let asked = RegistryRequest {
                registry: registry.map(str::to_owned),
                pull_secret: pull_secret.map(str::to_owned),
            };
            wished(&asked).ok()
        };
        let images = |registry: &str, pull_secret: Option<&str>| {
            Some(Images {
                registry: registry.to_owned(),
                pull_secret: pull_secret.map(str::to_owned),
            })
        };
        for registry in ["r.org", ""] {
            for secret in [Some("regcred"), None] {
                let expected = images(registry, secret);
                assert_eq!(wished(Some(registry), secret), Some(expected));
            }
        }
        assert_eq!(wished(None, None), Some(None));
        assert_eq!(wished(None, Some("regcred")), None);
        for wrong in ["", "Reg", "a_b", "-a", "a b"] {
            assert_eq!(wished(Some("r.org"), Some(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_registry_is_a_host_with_a_path() {
        for good in [
            "",
            "registry.example.org",
            "localhost:5000",
            "mirror:5000/a/b_c",
            "10.0.0.1:443/x",
        ] {
            assert_eq!(checked(good.to_owned()).ok().as_deref(), Some(good));
        }
        for bad in [
            "https://registry.example.org",
            "mirror",
            "registry.example.org/",
            "registry.example.org/A",
            "r.org:0",
            "r.org:99999",
            "r.org/a b",
            "a@r.org",
        ] {
            assert!(checked(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
