/** Programs that send a request: curl, and clients in Python. */

import { isoOf, later, readTime, stepOf } from "./time.js";

const LINE = 100;

/**
 * @typedef {object} Sample
 * @property {string} name
 * @property {string} [install] command that installs the client
 * @property {string} [note] options that the program lacks, or the reason why there is no code
 * @property {string} [code]
 */

/**
 * Programs that send a request.
 * @param {object} request of `POST /forecast`
 * @param {string} server address, without a slash at its end
 * @param {boolean} keyed whether to send a key, from the variable FORETELL_KEY
 * @param {object} card of the model
 * @returns {Sample[]}
 */
export function samples(request, server, keyed, card) {
  return [
    { name: "curl", code: curl(request, server, keyed) },
    { name: "Python, httpx", install: "pip install httpx", code: httpx(request, server, keyed) },
    {
      name: "Python, pandas",
      install: "pip install foretell pandas",
      ...pandas(request, server, keyed, card),
    },
    {
      name: "Python, tritonclient",
      install: "pip install numpy 'tritonclient[http]'",
      ...triton(request, server, keyed, card),
    },
  ];
}

/** JSON with a line for each row, for readability. */
function rowByRow(value, indent = 0, unit = "  ") {
  const pad = unit.repeat(indent + 1);
  const end = `\n${unit.repeat(indent)}`;
  if (Array.isArray(value)) {
    if (value.some((one) => Array.isArray(one) || (one && typeof one === "object"))) {
      return `[\n${value.map((one) => pad + rowByRow(one, indent + 1, unit)).join(",\n")}${end}]`;
    }
    const cells = value.map((one) => JSON.stringify(one));
    const line = `[${cells.join(", ")}]`;
    if (line.length <= LINE) return line;
    const lines = [];
    for (let i = 0; i < cells.length; i += 6) lines.push(pad + cells.slice(i, i + 6).join(", "));
    return `[\n${lines.join(",\n")}${end}]`;
  }
  if (value && typeof value === "object") {
    const members = Object.entries(value).map(
      ([name, one]) => `${pad}${JSON.stringify(name)}: ${rowByRow(one, indent + 1, unit)}`,
    );
    return `{\n${members.join(",\n")}${end}}`;
  }
  return JSON.stringify(value);
}

/** `rowByRow` as Python: replaces null, true and false, but not in strings. */
const python = (value, indent) =>
  rowByRow(value, indent, "    ").replace(/("(?:[^"\\]|\\.)*")|\b(null|true|false)\b/g, (all, text, word) =>
    text ? all : { null: "None", true: "True", false: "False" }[word],
  );

/** A text in single quotes for a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(request, server, keyed) {
  return [
    `curl -s ${quoted(`${server}/forecast`)} \\`,
    "  -H 'Content-Type: application/json' \\",
    ...(keyed ? ['  -H "Authorization: Bearer $FORETELL_KEY" \\'] : []),
    // An argument has a limited length.
    `  -d @- <<'END'\n${rowByRow(request)}\nEND`,
  ].join("\n");
}

function httpx(request, server, keyed) {
  return `${keyed ? "import os\n\n" : ""}import httpx

request = ${python(request, 0)}
answer = httpx.post(
    "${server}/forecast",
    json=request,${keyed ? `\n    headers={"Authorization": f"Bearer {os.environ['FORETELL_KEY']}"},` : ""}
    timeout=30,
)
answer.raise_for_status()
[output] = answer.json()["outputs"]
print(output["content"][0]["mean_forecast"])
`;
}

const rowsOf = ({ series }) => series.map((row) => (Array.isArray(row) ? row : [row]));

/** The input as a table: covariates are columns, and future ones go on after the series. */
function tableOf(input, card) {
  const rows = rowsOf(input);
  const entries = (field) => Object.entries(input[field] ?? {});
  const ahead = [...entries("past_covariates"), ...entries("future_covariates")];
  const fixed = entries("static_covariates");
  const count = Math.max(rows.length, ...ahead.map(([, values]) => values.length));
  const nothing = input.channels.map(() => null);
  const times = input.timestamps && [...input.timestamps];
  const last = times && readTime(times.at(-1));
  while (times && times.length < count) {
    const step = later(last.wall, stepOf(card.frequency), times.length - rows.length + 1);
    times.push(isoOf(step, last.offset));
  }
  return {
    columns: [...input.channels, ...ahead.map(([name]) => name), ...fixed.map(([name]) => name)],
    rows: Array.from({ length: count }, (_, row) => [
      ...(rows[row] ?? nothing),
      ...ahead.map(([, values]) => values[row] ?? null),
      ...fixed.map(([, value]) => value),
    ]),
    times,
  };
}

function pandas(request, server, keyed, card) {
  const [input] = request.inputs;
  const { horizon, quantiles, missing } = request.options;
  const zone = input.time_zone
    ? `.tz_localize(${JSON.stringify(input.time_zone)}, ambiguous="infer")`
    : "";
  const { columns, rows, times } = tableOf(input, card);
  const clock = times ? `frame.insert(0, "time", pd.to_datetime(${python(times, 0)})${zone})\n` : "";
  const options = [
    `model=${JSON.stringify(request.model)}`,
    `horizon=${horizon}`,
    ...(quantiles ? [`quantiles=${python(quantiles, 0)}`] : []),
    ...(missing ? [`missing=${JSON.stringify(missing)}`] : []),
  ];
  const lacking = [
    ...(input.scenarios ? ["other scenarios than the first"] : []),
    ...(request.options.importance ? ["importance"] : []),
  ].join(" and ");
  const note = lacking ? `This client has no ${lacking}.` : undefined;
  const code = `${keyed ? "import os\n\n" : ""}import pandas as pd

from foretell import Client

frame = pd.DataFrame(
    ${python(rows, 1)},
    columns=${python(columns, 1)},
)
${clock}with Client("${server}"${keyed ? ', key=os.environ["FORETELL_KEY"]' : ""}) as client:
    forecast = client.forecast(
        frame,
        ${options.join(",\n        ")},
    )
print(forecast)
`;
  return { code, note };
}

function triton(request, server, keyed, card) {
  if (card.needs_timestamps) {
    return { note: "This model reads the calendar, and this protocol has no times. Use another client." };
  }
  const [input] = request.inputs;
  if (Object.keys(input).some((field) => field.endsWith("_covariates"))) {
    return { note: "This program sends no covariates, and this model reads some. Use another client." };
  }
  const window = rowsOf(input).slice(-card.context);
  if (window.flat().includes(null)) {
    return { note: "This protocol does not fill missing values. Use another client." };
  }
  const [name, version] = request.model.split("@");
  const key = keyed
    ? `\n    headers={"Authorization": f"Bearer {os.environ['FORETELL_KEY']}"},`
    : "";
  const code = `${keyed ? "import os\n\n" : ""}import numpy as np
import tritonclient.http as triton

window = np.array(
    [${python(window, 1)}],
    dtype=np.float32,
)
history = triton.InferInput("history", list(window.shape), "FP32")
history.set_data_from_numpy(window)
client = triton.InferenceServerClient("${server.replace(/^https?:\/\//, "")}"${server.startsWith("https") ? ", ssl=True" : ""})
answer = client.infer(
    "${name}",
    [history],
    model_version="${version}",${key}
)
print(answer.as_numpy("forecast")[0])  # steps × ${card.targets.length === 1 ? "the target" : "targets"}
`;
  const plain = request.options.horizon === card.horizon && !request.options.quantiles;
  return plain
    ? { code }
    : { code, note: `This protocol returns one pass of the model: ${card.horizon} steps, without intervals.` };
}
