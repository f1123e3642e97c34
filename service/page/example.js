/** The example of a model's bundle as a table, which can be edited like any other. */

import { channelsOf, rowwise } from "./covariates.js";
import { timeAfter } from "./source.js";

/**
 * @param {object} example of `GET /models/{name}/example`
 * @param {object} card of the model
 * @returns {import("./csv.js").Table}
 */
export function tableOf({ request, actual }, card) {
  const [input] = request.inputs;
  const { name, series, timestamps } = input;
  const clock = (time) => time.replace(/T(\d\d:\d\d)(:00(?!:))?/, " $1");
  const column = (channel) => series.map((row) => row[input.channels.indexOf(channel)]);
  // A past covariate is a channel, or one for each category.
  const past = (covariate) =>
    covariate.type === "boolean"
      ? column(covariate.name).map(Boolean)
      : series.map((_, i) =>
          covariate.categories.find((one) => column(`${covariate.name}=${one}`)[i]),
        );
  const columns = [
    ...(timestamps ? [["time", timestamps.map(clock)]] : []),
    ...channelsOf(card).map((channel) => [channel, column(channel)]),
    ...rowwise(card).map((one) => [
      one.name,
      one.kind === "past" ? past(one) : input.future_covariates[one.name],
    ]),
  ];
  const count = Math.max(...columns.map(([, values]) => values.length));
  const rows = Array.from({ length: count }, (_, i) => columns.map(([, values]) => text(values[i])));
  const table = {
    name,
    header: columns.map(([title]) => title),
    rows: rows.slice(0, series.length),
    comma: false,
    timeColumn: timestamps ? 0 : -1,
    order: "dmy",
    ambiguous: false,
    timeZone: "",
    statics: Object.fromEntries(
      Object.entries(input.static_covariates ?? {}).map(([one, value]) => [one, text(value)]),
    ),
    actual,
    example: true,
  };
  const future = rows
    .slice(series.length)
    .map((cells, i) =>
      timestamps ? cells.with(0, timeAfter(table, card.frequency, series.length + i)) : cells,
    );
  return { ...table, rows: [...table.rows, ...future] };
}

const text = (value) => (value === null || value === undefined ? "" : String(value));
