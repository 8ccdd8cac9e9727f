"""The Python client, unchanged, against the kubeconfig of $KUBECONFIG: every way it has of talking to the API."""

import json
import threading

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream

NAMESPACE, POD, NAME = "kubectl-tests", "box", "by-python"

config.load_kube_config()
core, apps = client.CoreV1Api(), client.AppsV1Api()

# Lists, in pages and of a custom resource.
seen, token = [], None
while True:
    page = core.list_config_map_for_all_namespaces(limit=2, _continue=token)
    seen += [m.metadata.uid for m in page.items]
    token = page.metadata._continue
    if not token:
        break
assert len(seen) == len(set(seen)) > 2, seen
assert client.CustomObjectsApi().list_cluster_custom_object("kustomize.toolkit.fluxcd.io", "v1", "kustomizations")["items"]
assert client.VersionApi().get_code().git_version.startswith("v1.")

# A watch sees what is written after it began.
start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
events, done = [], threading.Event()


def follow():
    for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version=start, timeout_seconds=60):
        if event["object"].metadata.name == NAME:
            events.append(event["type"])
            if event["type"] == "DELETED":
                break
    done.set()


threading.Thread(target=follow, daemon=True).start()
core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": NAME}, "data": {"a": "1"}})
core.patch_namespaced_config_map(NAME, NAMESPACE, {"data": {"b": "2"}})
core.patch_namespaced_config_map(NAME, NAMESPACE, [{"op": "remove", "path": "/data/a"}])
found = core.read_namespaced_config_map(NAME, NAMESPACE)
assert found.data == {"b": "2"}, found.data
found.data = {"c": "3"}
core.replace_namespaced_config_map(NAME, NAMESPACE, found)
core.delete_namespaced_config_map(NAME, NAMESPACE)
assert done.wait(60), events
assert events == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"], events

# Errors are the API server's own.
try:
    core.read_namespaced_config_map(NAME, NAMESPACE)
    raise AssertionError("it is deleted")
except ApiException as error:
    assert (error.status, json.loads(error.body)["reason"]) == (404, "NotFound"), error

# Sessions.
said = stream(core.connect_get_namespaced_pod_exec, POD, NAMESPACE, command=["sh", "-c", "echo out; exit 7"],
              stdout=True, stderr=True, stdin=False, tty=False, _preload_content=False)
said.run_forever(timeout=30)
assert (said.read_stdout(), said.returncode) == ("out\n", 7), said.returncode
forward = portforward(core.connect_get_namespaced_pod_portforward, POD, NAMESPACE, ports="8080")
socket = forward.socket(8080)
socket.setblocking(True)
socket.sendall(b"GET /page HTTP/1.0\r\n\r\n")
answer = b""
while part := socket.recv(65536):
    answer += part
assert len(answer.split(b"\r\n\r\n", 1)[1]) == 1 << 20, len(answer)
assert isinstance(core.read_namespaced_pod_log(POD, NAMESPACE, tail_lines=1), str)
print("python: ok")
