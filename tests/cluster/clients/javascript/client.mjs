// The JavaScript client, unchanged, against the kubeconfig of $KUBECONFIG: node client.mjs MODULES. Every way it has of
// talking to the API.
import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';

const [modules] = process.argv.slice(2);
const k8s = await import(pathToFileURL(`${modules}/@kubernetes/client-node/dist/index.js`));

const [namespace, box, name] = ['kubectl-tests', 'box', 'by-javascript'];
const deadline = setTimeout(() => { console.error('it takes too long'); process.exit(1); }, 120_000);

// Who it is, and whom it believes, comes from the file alone.
const config = new k8s.KubeConfig();
config.loadFromDefault();
assert.ok(config.getCurrentUser().exec.command, 'a credential plugin');
assert.ok(config.getCurrentCluster().caData, 'a CA');
assert.ok(!config.getCurrentCluster().skipTLSVerify);
const core = config.makeApiClient(k8s.CoreV1Api);
assert.match((await config.makeApiClient(k8s.VersionApi).getCode()).gitVersion, /^v1\./);

// Lists, in pages and of a custom resource.
const seen = [];
for (let next; ;) {
  const page = await core.listConfigMapForAllNamespaces({ limit: 2, _continue: next });
  seen.push(...page.items.map((item) => item.metadata.uid));
  next = page.metadata._continue;
  if (!next) break;
}
assert.ok(seen.length > 2 && new Set(seen).size === seen.length, `${seen}`);
const kustomizations = { group: 'kustomize.toolkit.fluxcd.io', version: 'v1', plural: 'kustomizations' };
assert.ok((await config.makeApiClient(k8s.CustomObjectsApi).listClusterCustomObject(kustomizations)).items.length);

// What a watch says until it said enough, and then the client leaves it.
function watched(path, query, enough) {
  const events = [];
  return new Promise((resolve, reject) => {
    const over = (error) => (enough(events) ? resolve(events) : reject(error ?? new Error(`it ended: ${events.map(([type]) => type)}`)));
    const running = new k8s.Watch(config).watch(path, query, (type, object) => {
      if (object.metadata.name !== name || enough(events)) return;
      events.push([type, object]);
      if (enough(events)) running.then((controller) => controller.abort(), reject);
    }, over);
  });
}

// A watch sees what is written after it began.
const configMaps = `/api/v1/namespaces/${namespace}/configmaps`;
const start = (await core.listNamespacedConfigMap({ namespace })).metadata.resourceVersion;
const deleted = (events) => events.some(([type]) => type === 'DELETED');
const follows = watched(configMaps, { resourceVersion: start, timeoutSeconds: 60 }, deleted);
await core.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { a: '1' } } });
const patched = (body, strategy) =>
  core.patchNamespacedConfigMap({ name, namespace, body }, k8s.setHeaderOptions('Content-Type', strategy));
await patched({ data: { b: '2' } }, k8s.PatchStrategy.MergePatch);
await patched([{ op: 'remove', path: '/data/a' }], k8s.PatchStrategy.JsonPatch);
const found = await core.readNamespacedConfigMap({ name, namespace });
assert.deepEqual({ ...found.data }, { b: '2' });
await core.replaceNamespacedConfigMap({ name, namespace, body: { ...found, data: { c: '3' } } });
await core.deleteNamespacedConfigMap({ name, namespace });
const types = (await follows).map(([type]) => type);
assert.deepEqual(types, ['ADDED', 'MODIFIED', 'MODIFIED', 'MODIFIED', 'DELETED']);

// Errors are the API server's own.
await assert.rejects(core.readNamespacedConfigMap({ name, namespace }), (error) => {
  assert.deepEqual([error.code, JSON.parse(error.body).reason], [404, 'NotFound']);
  return true;
});

// A Pod of its own, and its log as it is written.
const { image } = (await core.readNamespacedPod({ name: box, namespace })).spec.containers[0];
const command = ['sh', '-c', 'echo one; sleep 2; echo two; exec sleep 3600'];
const pod = { metadata: { name }, spec: { containers: [{ name, image, command }] } };
await core.createNamespacedPod({ namespace, body: pod });
try {
  const runs = (events) => events.some(([, object]) => object.status.phase === 'Running');
  await watched(`/api/v1/namespaces/${namespace}/pods`, { fieldSelector: `metadata.name=${name}` }, runs);
  const log = new PassThrough({ encoding: 'utf8' });
  const reading = await new k8s.Log(config).log(namespace, name, name, log, { follow: true });
  let lines = '';
  for await (const part of log) {
    lines += part;
    if (lines.includes('two')) break;
  }
  reading.abort();
  assert.equal(lines, 'one\ntwo\n');
  assert.equal(await core.readNamespacedPodLog({ name, namespace, tailLines: 1 }), 'two\n');

  // Sessions.
  const [input, out, err] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const script = ['sh', '-c', 'read line; echo "got $line"; echo err >&2; exit 7'];
  const ended = new Promise((resolve, reject) => {
    new k8s.Exec(config).exec(namespace, name, name, script, out, err, input, false, resolve).catch(reject);
  });
  input.write('hello\n');
  const [status, said, complained] = await Promise.all([ended, text(out), text(err)]);
  const cause = status.details.causes.find(({ reason }) => reason === 'ExitCode');
  assert.deepEqual([said, complained, status.status, cause.message], ['got hello\n', 'err\n', 'Failure', '7']);
} finally {
  await core.deleteNamespacedPod({ name, namespace, gracePeriodSeconds: 0 });
}
const [forth, back, wrong] = [new PassThrough(), new PassThrough(), new PassThrough()];
const forward = await new k8s.PortForward(config).portForward(namespace, box, [8080], back, wrong, forth);
forward.on('close', () => back.end());
forth.write('GET /page HTTP/1.0\r\n\r\n');
const page = [];
for await (const part of back) {
  page.push(part);
  const all = Buffer.concat(page);
  const head = all.indexOf('\r\n\r\n');
  if (head >= 0 && all.length - head - 4 >= 1 << 20) break;
}
forward.close();
const all = Buffer.concat(page);
assert.equal(all.length - all.indexOf('\r\n\r\n') - 4, 1 << 20);
clearTimeout(deadline);
console.log('javascript: ok');
