// Shows /api/v1/openapi.json for people, and lets them try what only reads.

const theme = localStorage.getItem("theme") ?? "auto";
const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
document.documentElement.dataset.theme = dark ? "dark" : "light";

function el(tag, properties, ...children) {
  const { dataset, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  if (dataset) Object.assign(element.dataset, dataset);
  element.append(...children.filter((child) => child != null));
  return element;
}

function schemaName(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.oneOf) return schema.oneOf.map(schemaName).filter(Boolean).join(" or ");
  if (schema.type === "array") return `list of ${schemaName(schema.items)}`;
  const type = [schema.type].flat().filter((name) => name && name !== "null").join(" or ");
  return schema.enum ? schema.enum.join(" or ") : type;
}

function fields(document, schema) {
  const name = schema?.$ref ? schemaName(schema) : schema?.type === "array" && schema.items.$ref ? schemaName(schema.items) : null;
  const found = name && document.components.schemas[name];
  if (!found?.properties) return null;
  const rows = Object.entries(found.properties).map(([field, value]) => el("tr", {},
    el("td", { className: "tight" }, el("code", {}, field)), el("td", { className: "tight quiet" }, schemaName(value)), el("td", {}, value.description ?? "")));
  return el("details", {}, el("summary", {}, el("span", { className: "quiet" }, `Fields of ${name}`)), el("div", { className: "scroll" }, el("table", {}, el("tbody", {}, ...rows))));
}

function tryIt(path, parameters) {
  const inputs = parameters.map((parameter) => {
    const input = el("input", { name: parameter.name, required: parameter.required ?? false, placeholder: String(parameter.schema?.default ?? "") });
    return [parameter, input];
  });
  const answer = el("pre", { hidden: true });
  const form = el("form", {}, el("div", { className: "fields" }, ...inputs.map(([parameter, input]) => el("label", { className: "quiet" }, `${parameter.name} `, input))),
    el("div", { className: "row" }, el("button", { type: "submit", className: "plain" }, "Try it")), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let filled = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of inputs) {
      if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    const response = await fetch(query.size ? `${filled}?${query}` : filled);
    const text = await response.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: as it is */ }
    answer.hidden = false;
    answer.textContent = `${response.status} ${response.statusText}\n\n${shown.slice(0, 20_000)}`;
  });
  return form;
}

function operation(document, path, verb, operation) {
  const parameters = operation.parameters ?? [];
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const good = Object.entries(operation.responses).find(([status]) => status.startsWith("2"));
  const content = good && Object.values(good[1].content ?? {})[0]?.schema;
  const admin = (operation.security ?? []).some((need) => "admin" in need);
  const list = (title, rows) => rows.length ? [el("h3", {}, title), el("div", { className: "scroll" }, el("table", {}, el("tbody", {}, ...rows)))] : [];
  return el("details", {},
    el("summary", {}, el("span", { className: "verb", dataset: { verb } }, verb.toUpperCase()), el("code", {}, path), el("span", { className: "quiet" }, operation.summary ?? ""),
      admin ? el("span", { className: "tag", dataset: { kind: "warn" } }, "admin token") : null),
    el("div", { className: "inside" },
      operation.description ? el("p", {}, operation.description) : null,
      ...list("Parameters", parameters.map((parameter) => el("tr", {}, el("td", { className: "tight" }, el("code", {}, parameter.name)),
        el("td", { className: "tight quiet" }, `${parameter.in}, ${schemaName(parameter.schema)}`), el("td", {}, parameter.description ?? "")))),
      ...(body ? [el("h3", {}, "Body"), el("p", { className: "quiet" }, schemaName(body)), fields(document, body)] : []),
      ...list("Answers", Object.entries(operation.responses).map(([status, response]) => el("tr", {}, el("td", { className: "tight" }, status),
        el("td", {}, response.description || "", " ", el("span", { className: "quiet" }, schemaName(Object.values(response.content ?? {})[0]?.schema)))))),
      content ? fields(document, content) : null,
      verb === "get" && !path.endsWith("/events") ? tryIt(path, parameters) : null));
}

const main = document.getElementById("main");
const description = await (await fetch("/api/v1/openapi.json")).json();
document.getElementById("about").textContent = `version ${description.info.version}`;
main.append(el("p", { className: "quiet" }, description.info.description));
for (const tag of description.tags) {
  const inside = Object.entries(description.paths).flatMap(([path, verbs]) => Object.entries(verbs)
    .filter(([, content]) => content.tags?.includes(tag.name)).map(([verb, content]) => operation(description, path, verb, content)));
  main.append(el("section", { className: "card" }, el("div", { className: "head" }, el("h2", {}, tag.name), el("p", { className: "quiet" }, tag.description)), ...inside));
}
