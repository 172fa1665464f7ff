"""InferenceCluster v1alpha1: models, validation rules, CRD."""
