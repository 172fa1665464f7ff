{{/*
What the manager may do where it serves: in every namespace, or in those of `watchNamespaces`. Each line is used; the
tests compare this list with what the manager asks for.
*/}}
{{- define "swingpool.rules" -}}
# The resource, its status, and to own children where owner references are enforced.
- apiGroups: [swingpool.dev]
  resources: [inferenceclusters]
  verbs: [get, list, watch]
- apiGroups: [swingpool.dev]
  resources: [inferenceclusters/status]
  verbs: [patch]
- apiGroups: [swingpool.dev]
  resources: [inferenceclusters/finalizers]
  verbs: [update]
# Children: pools and router.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# The endpoint picker's right to read pods, which the manager can grant since it has it.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
# For gateways of others, where somebody asks for it.
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, create, patch, delete]
# The picker's right to read priorities, where somebody asks for the above.
- apiGroups: [inference.networking.x-k8s.io]
  resources: [inferenceobjectives]
  verbs: [get, list, watch]
# Workers: their roles are labels of their pods.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
# What it tells users.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
