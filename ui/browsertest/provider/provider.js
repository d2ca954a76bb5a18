// An OpenID Connect provider for tests: oidc-provider, with its own pages, which take any name and password.
// Arguments: its port, and the URL of the server that people sign in to.
import Provider from "oidc-provider";

const [port, server] = process.argv.slice(2);
const groups = { ann: ["carillon-admins", "finance"], bob: ["finance", "shop"], eve: ["kitchen"] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "carillon",
    client_secret: "not-a-secret-in-tests",
    redirect_uris: [`${server}/login/callback`],
    post_logout_redirect_uris: [`${server}/login`],
    grant_types: ["authorization_code"],
  }, {
    client_id: "robot",
    client_secret: "not-a-secret-in-tests",
    redirect_uris: [],
    response_types: [],
    grant_types: ["client_credentials"],
  }],
  claims: { openid: ["sub"], profile: ["name", "groups"], email: ["email", "email_verified"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id} of tests`, email: `${id}@example.com`, email_verified: true, groups: groups[id] ?? [] }),
  }),
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true }, clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => [],
      getResourceServerInfo: (_, resource) => ({ scope: "", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: 300 }),
    },
  },
  pkce: { required: () => true },
  cookies: { keys: ["keys of tests"] },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
