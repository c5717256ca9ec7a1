// Asks the server. The token lives here, in the memory of the page, and nowhere else.

let token = null;

export const hasToken = () => token != null;
export const setToken = (value) => { token = value; };

export async function request(method, path, body, offered = token) {
  const headers = {};
  if (offered) headers.authorization = `Bearer ${offered}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(`/api/v1/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (answer.status === 204) return null;
  if (answer.ok) return answer.json();
  // Something in between, a proxy perhaps, may answer with something else than a problem.
  const problem = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail ?? `${answer.status} ${answer.statusText}`), { status: answer.status, problem });
}

export const api = (path) => request("GET", path);
