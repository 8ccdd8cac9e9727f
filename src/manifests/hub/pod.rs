//! The hub's Pod: its container, where its data and Secrets are, and what it is told in variables.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{GIT_PORT, HEALTH_PORT, HTTPS_PORT, HUB, HubValues, PEER_PORT, selector};
use crate::manifests::linux;

/// Where the volume is.
const VOLUME: &str = "/var/lib/linesman";
/// A directory that the hub makes, for itself alone: that of the volume is the file system's, and may be for all to enter.
const DATA: &str = "/var/lib/linesman/hub";
/// Where Secrets are, as files.
const FILES: &str = "/etc/linesman";
/// What the hub has beyond its drain time to write its last records.
const LAST: Duration = Duration::from_secs(20);

pub(super) fn of(values: &HubValues) -> Value {
    let files = files(values);
    let mut spec = json!({
        "serviceAccountName": HUB,
        "automountServiceAccountToken": false,
        // What Kubernetes says of Services in variables would begin as the hub's own do.
        "enableServiceLinks": false,
        "nodeSelector": linux(),
        "terminationGracePeriodSeconds": (values.pause() + values.drain + LAST).as_secs(),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            // Else each start would open the hub's keys to the group.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(values, &files)],
        "volumes": volumes(values, &files),
    });
    if values.several() {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        }]);
    }
    spec
}

/// A Secret that the hub finds as files.
struct Files<'a> {
    volume: String,
    secret: &'a str,
    path: String,
}

fn files(values: &HubValues) -> Vec<Files<'_>> {
    let tls = values.tls.as_ref().map(|tls| tls.secret.as_str());
    let own = [("tls", tls), ("database", values.database.as_deref())];
    let own = own.into_iter().filter_map(|(name, secret)| {
        Some(Files {
            volume: name.to_owned(),
            secret: secret?,
            path: format!("{FILES}/{name}"),
        })
    });
    let more = values.secrets.iter().enumerate();
    let more = more.map(|(number, secret)| Files {
        // A Secret's name may be longer than a volume's.
        volume: format!("secret-{number}"),
        secret,
        path: format!("{FILES}/secrets/{secret}"),
    });
    own.chain(more).collect()
}

fn volumes(values: &HubValues, files: &[Files<'_>]) -> Vec<Value> {
    // SQLite sorts there what is too much for memory.
    let mut all = vec![json!({"name": "tmp", "emptyDir": {}})];
    if values.several() {
        all.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": HUB}}));
    }
    all.extend(files.iter().map(|file| {
        json!({"name": file.volume, "secret": {"secretName": file.secret, "defaultMode": 0o440}})
    }));
    all
}

fn container(values: &HubValues, files: &[Files<'_>]) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "health"},
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        })
    };
    let mut liveness = probe("/livez", 10, 4);
    // What stands still does not end by itself, however long it is given.
    liveness["terminationGracePeriodSeconds"] = json!(10);
    let port =
        |name: &str, port: u16| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let mut ports = vec![
        port("https", HTTPS_PORT),
        port("git", GIT_PORT),
        port("health", HEALTH_PORT),
    ];
    if values.several() {
        ports.push(port("peers", PEER_PORT));
    }
    let mut container = json!({
        "name": "hub",
        "image": values.image,
        "args": ["hub"],
        "env": env(values),
        "ports": ports,
        // The first start of a newer version brings the database forward.
        "startupProbe": probe("/livez", 2, 150),
        "livenessProbe": liveness,
        "readinessProbe": probe("/readyz", 5, 2),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": values.memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts(files),
    });
    let pause = values.pause().as_secs();
    if pause > 0 {
        // API servers below 1.30 know no `sleep` of their own.
        let sleep = json!({"command": ["sleep", pause.to_string()]});
        container["lifecycle"] = json!({"preStop": {"exec": sleep}});
    }
    container
}

fn mounts(files: &[Files<'_>]) -> Vec<Value> {
    let of_file =
        |file: &Files<'_>| json!({"name": file.volume, "mountPath": file.path, "readOnly": true});
    let mut all = vec![
        json!({"name": "data", "mountPath": VOLUME}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
    ];
    all.extend(files.iter().map(of_file));
    all
}

fn env(values: &HubValues) -> Vec<Value> {
    // `$(NAME)` would stand for another variable; `$$` stands for `$`.
    let entry =
        |(name, value): (String, String)| json!({"name": name, "value": value.replace('$', "$$")});
    variables(values).into_iter().map(entry).collect()
}

fn variables(values: &HubValues) -> BTreeMap<String, String> {
    let mut own = vec![
        ("LINESMAN_DATA", DATA.to_owned()),
        ("LINESMAN_URL", values.url.clone()),
        ("LINESMAN_GIT_URL", values.git_url.clone()),
        ("LINESMAN_AGENT_IMAGE", values.agent_image.clone()),
        ("LINESMAN_DRAIN", format!("{}s", values.drain.as_secs())),
        // The kubelet asks from outside the Pod.
        ("LINESMAN_HEALTH_LISTEN", format!("0.0.0.0:{HEALTH_PORT}")),
    ];
    if let Some(tls) = &values.tls {
        own.push(("LINESMAN_TLS_CERT", format!("{FILES}/tls/tls.crt")));
        own.push(("LINESMAN_TLS_KEY", format!("{FILES}/tls/tls.key")));
        if tls.ca {
            own.push(("LINESMAN_TLS_CA", format!("{FILES}/tls/ca.crt")));
        }
    }
    if values.database.is_some() {
        own.push((
            "LINESMAN_DATABASE_URL_FILE",
            format!("{FILES}/database/url"),
        ));
    }
    if values.several() {
        own.push(("LINESMAN_PEER_LISTEN", format!("0.0.0.0:{PEER_PORT}")));
    }
    let own = own
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    own.chain(values.settings.clone()).collect()
}
