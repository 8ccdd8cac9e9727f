//! What an API server refuses at sight: a name that is none, and data that are no map of texts.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Document, Finding, directory, finding, is_kustomization, references, resolve, text};

/// Which names an API server takes for an object, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One of a path's: that of a role may have colons and capitals, and one of a signer's or an address has colons.
    Segment,
    /// RFC 1123, with dots.
    Subdomain,
    /// RFC 1123, without.
    Label,
}

impl Form {
    fn of(version: &str, kind: &str) -> Self {
        match (version, kind) {
            (
                _,
                "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding"
                | "ClusterTrustBundle" | "IPAddress",
            ) => Self::Segment,
            ("v1", "Namespace" | "Service") => Self::Label,
            _ => Self::Subdomain,
        }
    }

    fn takes(self, name: &str) -> bool {
        let of_host = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_label = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(of_host);
            plain && !part.starts_with('-') && !part.ends_with('-')
        };
        match self {
            Self::Segment => ![".", ".."].contains(&name) && !name.contains(['/', '%']),
            Self::Subdomain => name.len() <= 253 && name.split('.').all(is_label),
            Self::Label => name.len() <= 63 && is_label(name),
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::Segment => "has no '/' and no '%'",
            Self::Subdomain => {
                "has lower-case letters, digits, '-' and '.', 253 at most, and begins and ends with a letter or digit"
            }
            Self::Label => {
                "has lower-case letters, digits and '-', 63 at most, and begins and ends with a letter or digit"
            }
        }
    }
}

/// Files that kustomizations lay over others: what they name is not what is applied.
pub(super) fn patches(documents: &[Document<'_>]) -> BTreeSet<String> {
    let all = documents.iter().filter(|d| is_kustomization(d.file));
    let paths = all.flat_map(|d| {
        let named = references(&d.value).into_iter();
        let patches = named.filter(|(field, _)| field.starts_with("patches"));
        patches.filter_map(move |(_, path)| resolve(directory(d.file), &path))
    });
    paths.collect()
}

/// What holds for an object that is applied as it is.
pub(super) fn object(document: &Document<'_>, findings: &mut Vec<Finding>) {
    let Document { file, value } = document;
    let (kind, version) = (text(value, &["kind"]), text(value, &["apiVersion"]));
    if kind.is_empty() || version.is_empty() || kind.ends_with("List") || is_for_tools(value) {
        return;
    }
    let name = text(value, &["metadata", "name"]);
    let named = [
        ("name", name, Form::of(version, kind)),
        (
            "namespace",
            text(value, &["metadata", "namespace"]),
            Form::Label,
        ),
    ];
    for (field, said, form) in named {
        if !said.is_empty() && !is_filled_in(said) && !form.takes(said) {
            let message = format!("{kind} {name}: no API server takes metadata.{field} '{said}'");
            let fix = format!("give it one that {}", form.rule());
            findings.push(finding(file, &message, &fix));
        }
    }
    if version == "v1" && matches!(kind, "ConfigMap" | "Secret") {
        for field in ["data", "stringData", "binaryData"] {
            data(document, field, findings);
        }
    }
}

/// `data` of a `ConfigMap` or Secret is a map of texts.
fn data(document: &Document<'_>, field: &str, findings: &mut Vec<Finding>) {
    let Document { file, value } = document;
    let (kind, name) = (text(value, &["kind"]), text(value, &["metadata", "name"]));
    let (what, fix) = match &value[field] {
        Value::Null => return,
        Value::String(text) if is_filled_in(text) => return,
        Value::Object(entries) => {
            let mut wrong = entries.iter();
            let wrong = wrong.find(|(_, v)| !v.is_string() && !v.is_null());
            let Some((key, _)) = wrong else { return };
            (format!("{field}.{key} is no text"), "put it in quotes")
        }
        _ => (format!("{field} is no map"), "give each text a key"),
    };
    findings.push(finding(file, &format!("{kind} {name}: {what}"), fix));
}

/// By Flux' substitution, or by a template.
fn is_filled_in(name: &str) -> bool {
    name.contains(['$', '{'])
}

/// What kustomize and the like read themselves, and objects of OpenShift's own API server, some of which are called otherwise. A group
/// of Kubernetes' has a dot, but for its oldest ones; Backstage's has one, too.
fn is_for_tools(value: &Value) -> bool {
    let version = text(value, &["apiVersion"]);
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let served = match group {
        "" => version == "v1",
        "apps" | "autoscaling" | "batch" | "extensions" | "policy" => true,
        _ => group.contains('.') && group != "backstage.io",
    };
    let annotations = value["metadata"]["annotations"].as_object();
    let mut annotations = annotations.into_iter().flatten();
    !served
        || group == "kustomize.config.k8s.io"
        || group.ends_with(".openshift.io")
        || annotations.any(|(key, _)| key.starts_with("config.kubernetes.io/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(version: &str, kind: &str, rest: &str) -> Vec<String> {
        let text = format!("apiVersion: {version}\nkind: {kind}\n{rest}\n");
        let value = crate::yaml::documents(&text).unwrap().remove(0);
        let document = Document { file: "a", value };
        let mut findings = Vec::new();
        object(&document, &mut findings);
        findings.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn a_name_is_one_that_an_api_server_takes() {
        const RBAC: &str = "rbac.authorization.k8s.io/v1";
        const TRUST: &str = "certificates.k8s.io/v1beta1";
        let long = "a".repeat(64);
        for (version, kind, name, good) in [
            ("v1", "ConfigMap", "a-1.b", true),
            ("v1", "ConfigMap", long.as_str(), true),
            ("v1", "ConfigMap", "BAD_Name", false),
            ("v1", "ConfigMap", "a..b", false),
            ("v1", "ConfigMap", "-a", false),
            ("v1", "ConfigMap", "a.", false),
            ("v1", "ConfigMap", "a-${cluster}", true),
            ("v1", "Service", "a.b", false),
            ("v1", "Namespace", long.as_str(), false),
            (RBAC, "ClusterRole", "system:Aggregate:x", true),
            (RBAC, "RoleBinding", "a/b", false),
            ("apps/v1", "Deployment", "a:b", false),
            ("example.org/v1", "Thing", "A", false),
            ("builtin", "PrefixTransformer", "notImportantHere", true),
            ("image.openshift.io/v1", "ImageStreamTag", "a:latest", true),
            ("backstage.io/v1alpha1", "Component", "my_Web", true),
            ("skaffold/v4beta13", "Config", "my_Web", true),
            ("serving.knative.dev/v1", "Service", "a.b", true),
            (TRUST, "ClusterTrustBundle", "example.org:ca:one", true),
            ("batch/v1", "Job", "A", false),
        ] {
            let found = told(version, kind, &format!("metadata: {{name: \"{name}\"}}"));
            let message = format!("{kind} {name}: no API server takes metadata.name '{name}'");
            let expected: Vec<String> = (!good).then_some(message).into_iter().collect();
            assert_eq!(found, expected, "{kind} {name}");
        }
        let found = told("v1", "ConfigMap", "metadata: {name: a, namespace: A.b}");
        let message = "ConfigMap a: no API server takes metadata.namespace 'A.b'";
        assert_eq!(found, [message]);
    }

    #[test]
    fn data_are_a_map_of_texts() {
        for (kind, data, message) in [
            ("ConfigMap", "data: {a: b, c: ''}", None),
            ("ConfigMap", "data:", None),
            ("ConfigMap", "data: {a: null}", None),
            ("ConfigMap", "data: '${values}'", None),
            ("ConfigMap", "data: [1]", Some("data is no map")),
            ("ConfigMap", "data: {a: b, n: 1}", Some("data.n is no text")),
            ("ConfigMap", "data: {a: true}", Some("data.a is no text")),
            ("Secret", "data: text", Some("data is no map")),
            (
                "Secret",
                "stringData: {a: {b: c}}",
                Some("stringData.a is no text"),
            ),
            ("Thing", "data: [1]", None),
        ] {
            let found = told("v1", kind, &format!("metadata: {{name: a}}\n{data}"));
            let message = message.map(|said| format!("{kind} a: {said}"));
            let expected: Vec<String> = message.into_iter().collect();
            assert_eq!(found, expected, "{kind} {data}");
        }
    }
}
