//! F47: clocks that do not agree. A lab has one clock: what others write by theirs is written by the test.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linesman::clock::{now, rfc3339};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::{Told, evidence, of, with_and_without_the_hub};
use crate::blocked::{end_pods, fetcher};
use crate::support::seconds;
use crate::support::world::{self, FLUX, World};

/// So far ahead are the clocks of others.
const AHEAD: Duration = Duration::minutes(10);

/// F47: who leads renews his Lease by a clock that is ahead. He that does has the right one, and writes over what is put there.
fn renewed_in_the_future(world: &World) {
    let name = "kustomize-controller";
    let told = Told::before(world, ["F47", "ClockSkew"], of(world, name));
    let lease =
        format!("/apis/coordination.k8s.io/v1/namespaces/{FLUX}/leases/{name}-leader-election");
    let heal = told.is_named(&format!("{name}'s Lease renewed ahead of time"), || {
        // A MicroTime has six digits.
        let at = rfc3339(now() + AHEAD).replace('Z', "000Z");
        let renewed = json!({ "spec": { "renewTime": at } });
        world.api.patch(&lease, &renewed);
    });
    let said = evidence(&heal);
    let told_of = said
        .strip_prefix("Pod ")
        .and_then(|said| said.split_once(" renewed its Lease "))
        .and_then(|(pod, by)| Some((pod, by.strip_suffix(" s in the future")?)));
    let (pod, by) = told_of.unwrap_or_else(|| panic!("{heal:#}"));
    let by: i64 = by.parse().unwrap();
    let most = AHEAD.whole_seconds();
    assert!(
        pod.starts_with(name) && (most - 10..=most).contains(&by),
        "{said}"
    );
    told.is_over();
}

/// F47
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_controller_of_flux_whose_clock_is_ahead_is_named() {
    with_and_without_the_hub(&mut world::adopted(), renewed_in_the_future);
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const WEBHOOK: &str = "clock-ahead";

/// A webhook for the Pods of what fetches, whose certificate was made by a clock that is ahead. Gone at the end, also of a test that
/// fails.
struct Webhook<'a> {
    world: &'a World,
    /// Its certificate is valid from then on.
    from: OffsetDateTime,
}

impl<'a> Webhook<'a> {
    fn of(world: &'a World) -> Self {
        let from = (now() + AHEAD).replace_nanosecond(0).unwrap();
        let host = &world.place.host;
        let (port, ca) = serves(host, from);
        let (label, name) = fetcher(world);
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
        });
        let webhook = json!({
            "name": "clock-ahead.lab.test", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace()}},
            "objectSelector": {"matchLabels": {label: name}},
            "clientConfig": {"url": format!("https://{host}:{port}/"), "caBundle": STANDARD.encode(ca)},
        });
        let all = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": WEBHOOK}, "webhooks": [webhook],
        });
        world.api.create(WEBHOOKS, &all);
        Self { world, from }
    }
}

impl Drop for Webhook<'_> {
    fn drop(&mut self) {
        let _gone = self.world.api.try_delete(&format!("{WEBHOOKS}/{WEBHOOK}"));
    }
}

/// Shows everybody who comes a certificate that is valid from then on, for as long as the tests run. Its port, and the certificate.
fn serves(host: &str, from: OffsetDateTime) -> (u16, String) {
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.not_before = from;
    params.not_after = from + Duration::days(1);
    let pair = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&pair).unwrap();
    let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind((host, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            // Who came has seen it, and goes.
            drop(stream.set_read_timeout(Some(seconds(2))));
            drop(tls.complete_io(&mut stream));
        }
    });
    (port, certificate.pem())
}

/// F47: beside what the certificate keeps from being, the clock is named, and by how much it is off.
fn not_valid_yet(world: &World) {
    let (_, name) = fetcher(world);
    let object = of(world, name);
    let told = Told::before(world, ["F47", "ClockSkew"], object.clone());
    let webhook = Webhook::of(world);
    let what = format!("{name}'s Pods kept away by a webhook whose certificate is not valid yet");
    // What was put there may hold for the next Pod only.
    let heal = told.is_named(&what, || end_pods(world));
    let said = evidence(&heal);
    let begins = format!(
        "{object} says: a certificate is not valid before {}; the clock that it was met with was ",
        rfc3339(webhook.from)
    );
    let by = said
        .strip_prefix(&begins)
        .and_then(|by| by.strip_suffix(" s before that"));
    let by: i64 = by.unwrap_or_else(|| panic!("{heal:#}")).parse().unwrap();
    assert!((1..=AHEAD.whole_seconds()).contains(&by), "{said}");
    drop(webhook);
    told.is_over();
}

/// F47
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_certificate_that_keeps_flux_away_and_is_not_valid_yet_is_named() {
    with_and_without_the_hub(&mut world::adopted(), not_valid_yet);
}

/// F47
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_certificate_that_keeps_argo_cd_away_and_is_not_valid_yet_is_named() {
    with_and_without_the_hub(&mut world::adopted_argocd(), not_valid_yet);
}
