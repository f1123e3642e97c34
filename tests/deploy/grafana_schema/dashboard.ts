// What the dashboard may be: Grafana's own types, with those of the panels that it uses and of
// their queries. `dashboard.json` was made of it:
//   npm install @grafana/schema@12.4.11 ts-json-schema-generator@2.9.0
//   npx ts-json-schema-generator --path dashboard.ts --type Dashboard --jsDoc none > dashboard.json
import type * as ui from '@grafana/schema';
import type * as kind from '@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import type * as stat from '@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type * as table from '@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import type * as timeseries from '@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

// The package has no types of Prometheus' queries.
interface Query {
  refId: string;
  expr: string;
  legendFormat?: string;
  instant?: boolean;
  range?: boolean;
  format?: 'time_series' | 'table' | 'heatmap';
}

// Grafana puts in the defaults of options that are left out.
type Of<Type, Options, Custom> = Omit<kind.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Type;
  options?: Partial<Options>;
  fieldConfig: {
    defaults: Omit<kind.FieldConfig, 'custom'> & { custom?: Partial<Custom> };
    overrides: kind.FieldConfigSource['overrides'];
  };
  targets: Query[];
};

type Panel =
  | Of<'stat', stat.Options, Record<string, never>>
  | Of<'table', table.Options, table.FieldConfig>
  | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>;

export type Dashboard = Omit<kind.Dashboard, 'panels'> & { panels: Array<Panel | kind.RowPanel> };
