//! What kubectl does where its WebSocket is refused: it asks once more, by SPDY.

use std::process::Command;

use http::Request;
use serde_json::json;

use super::forms::{Line, Told};
use super::{NAMESPACE, POD, Running, ask, body, line, ready, user};
use crate::support::place::{kubectl, output, run};
use crate::support::world::{self, World};
use crate::support::{eventually, seconds, until};

const USER: &str = "half";
const GROUP: &str = "halves";

/// Sessions are asked for by `get` as a WebSocket, and by `create` with SPDY: this group may do the second only.
fn grant_half(world: &World) {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["create"]},
    ]);
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let metadata = json!({"name": GROUP, "namespace": NAMESPACE});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules,
    });
    world.api.create(&format!("{rbac}/roles"), &role);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": GROUP},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("linesman:{GROUP}")}],
    });
    world.api.create(&format!("{rbac}/rolebindings"), &binding);
}

/// The user's sessions that are over, oldest first: what was done, with which answer and which exit code.
fn sessions(world: &World) -> Vec<(String, u64, Option<i64>)> {
    let rows = world
        .hub
        .json(&["audit", "list", "--user", USER, "--limit", "200"]);
    let mut rows: Vec<_> = rows.as_array().unwrap().iter().collect();
    rows.reverse();
    rows.retain(|row| {
        row["stage"] == "close"
            && row["target"] != format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}")
    });
    rows.iter()
        .map(|row| {
            let action = row["action"].as_str().unwrap().to_owned();
            (action, row["code"].as_u64().unwrap(), row["exit"].as_i64())
        })
        .collect()
}

/// The request for a WebSocket, as the user through the line and as the same person without it.
fn refusals(world: &World) -> [Told; 2] {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}/exec?command=true&stdout=true");
    let request = || {
        Request::get(&path)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-protocol", "v5.channel.k8s.io")
    };
    let token = std::fs::read_to_string(world.directory.join(format!("{USER}.token"))).unwrap();
    let line = Line::by_http1(world).ask_as(request().body(Vec::new()).unwrap(), token.trim());
    let direct = request()
        .header("impersonate-user", format!("linesman:{USER}"))
        .header("impersonate-group", format!("linesman:{GROUP}"));
    [line, world.api.raw(direct.body(Vec::new()).unwrap())]
}

/// L3, L48: the refusal passes as it is, kubectl comes again by SPDY, and both are on record.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_session_whose_websocket_is_refused_goes_by_spdy() {
    let world = world::adopted();
    ready(&world);
    grant_half(&world);
    let kubeconfig = user(&world, USER, &["--group", GROUP]);
    let by_user = |args: &[&str]| {
        let mut command: Command = kubectl();
        command.arg("--kubeconfig").arg(&kubeconfig);
        command.args(["-n", NAMESPACE]).args(args);
        world.hub.environment(&mut command);
        command
    };
    until("the grant is in force", seconds(30), || {
        output(&mut by_user(&["get", "pod", POD])).status.success()
    });
    let [line_said, direct_said] = refusals(&world);
    assert_eq!(line_said.0, 403, "{line_said:?}");
    assert_eq!(line_said, direct_said);
    let before = sessions(&world).len();

    let told = run(&mut by_user(&["exec", POD, "--", "echo", "by SPDY"]));
    assert_eq!(told, "by SPDY\n");
    {
        let (_forwarding, lines) =
            Running::start(&mut by_user(&["port-forward", "pod/box", ":8080"]));
        let told = line(&lines, "the port is told", |line| {
            line.contains("127.0.0.1:")
        });
        let port = told.split("127.0.0.1:").nth(1).unwrap();
        let port: u16 = port.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(body(ask(port, "/page")).len(), 1 << 20);
    }
    let wanted = [
        ("kube.exec", 403, None),
        ("kube.exec", 101, Some(0)),
        ("kube.portforward", 403, None),
        ("kube.portforward", 101, None),
    ]
    .map(|(action, code, exit)| (action.to_owned(), code, exit));
    eventually("both tries of each are on record", seconds(30), || {
        let found = sessions(&world).split_off(before);
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });
}
