// The resources that operators of others add, as their CRDs have them: KEDA 2.10.1's ScaledObject and
// Prometheus operator 0.65.1's ServiceMonitor. `operators.json` was made of it:
//   npm install @kubernetes-models/keda@0.4.2 @kubernetes-models/prometheus-operator@4.4.4 ts-json-schema-generator@2.9.0
//   npx ts-json-schema-generator --path operators.ts --type Resource --jsDoc none > operators.json
import type { IScaledObject } from '@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject';
import type { IServiceMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';

export type Resource = IScaledObject | IServiceMonitor;
