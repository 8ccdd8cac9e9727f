// An OpenID provider on a port of its own, for the tests: node provider.mjs MODULES '{"redirect": "https://…", …}'.
// Prints its issuer as one line of JSON and ends with its stdin. Who logs in, and what is known of them, is said to
// /control/*; the rest is the certified implementation.
import { createServer } from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const [modules, text] = process.argv.slice(2);
const asked = JSON.parse(text);
const { default: Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));

const state = { login: 'ada', accounts: {}, counts: {}, away: [], gather: null };
const routes = {
  '/control/account': ({ id, claims }) => { state.accounts[id] = claims ?? undefined; },
  '/control/login': ({ id }) => { state.login = id; },
  '/control/keys': () => { provider = make(); },
  '/control/counts': () => state.counts,
  '/control/away': ({ paths }) => { state.away = paths; },
  '/control/gather': ({ path, count }) => { state.gather = { path, count, waiting: [] }; },
};

const server = createServer(async (req, res) => {
  try {
    const path = req.url.split('?')[0];
    if (routes[path]) {
      let body = '';
      for await (const chunk of req) body += chunk;
      const answer = routes[path](body ? JSON.parse(body) : {});
      res.setHeader('content-type', 'application/json');
      return res.end(JSON.stringify(answer ?? {}));
    }
    if (state.away.includes(path)) {
      res.statusCode = 503;
      return res.end();
    }
    if (state.gather?.path === path) await gathered(state.gather, res);
    if (path.startsWith('/interaction/')) return await interact(req, res);
    return provider.callback()(req, res);
  } catch (error) {
    res.statusCode = 500;
    return res.end(String(error?.stack ?? error));
  }
});

// Waits until so many wait at once; who hangs up does not count.
function gathered(gather, res) {
  return new Promise((go) => {
    gather.waiting.push(go);
    res.on('close', () => { gather.waiting = gather.waiting.filter((other) => other !== go); });
    if (gather.waiting.length < gather.count) return;
    state.gather = null;
    for (const each of gather.waiting) each();
  });
}

// Stands in for the person: logs in as whom the test says, and consents.
async function interact(req, res) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(req, res);
  if (state.login === null) {
    const refusal = { error: 'access_denied', error_description: 'the person said no' };
    return provider.interactionFinished(req, res, refusal, { mergeWithLastSubmission: false });
  }
  if (prompt.name === 'login') {
    return provider.interactionFinished(req, res, { login: { accountId: state.login } });
  }
  const known = grantId && await provider.Grant.find(grantId);
  const grant = known || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(req, res, result, { mergeWithLastSubmission: true });
}

function keys() {
  const kid = asked.kid ?? randomUUID();
  const pair = asked.algorithm === 'ES256'
    ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
    : generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { keys: [{ ...pair.privateKey.export({ format: 'jwk' }), kid, use: 'sig', alg: asked.algorithm ?? 'RS256' }] };
}

function make() {
  const made = new Provider(issuer, {
    clients: [{
      client_id: 'linesman',
      ...(asked.secret ? { client_secret: asked.secret } : { token_endpoint_auth_method: 'none' }),
      redirect_uris: [asked.redirect],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      id_token_signed_response_alg: asked.algorithm ?? 'RS256',
    }],
    cookies: { keys: ['of-the-tests'] },
    jwks: keys(),
    claims: {
      openid: ['sub'],
      profile: ['preferred_username', 'name'],
      email: ['email', 'email_verified'],
      groups: ['groups'],
    },
    conformIdTokenClaims: asked.userinfo === true,
    features: { devInteractions: { enabled: false }, revocation: { enabled: true } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
    rotateRefreshToken: true,
    // A person who is gone is nobody's account any more: their grants are refused.
    findAccount: (_, id) => state.accounts[id] && {
      accountId: id,
      claims: () => ({ sub: id, ...state.accounts[id] }),
    },
  });
  made.on('grant.success', (ctx) => {
    const kind = ctx.oidc.params.grant_type;
    state.counts[kind] = (state.counts[kind] ?? 0) + 1;
  });
  return made;
}

server.keepAliveTimeout = 120_000;

let issuer;
let provider;
server.listen(0, '127.0.0.1', () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  provider = make();
  console.log(JSON.stringify({ issuer }));
});
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
