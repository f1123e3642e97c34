"""The application: its routes, middleware and OpenAPI document."""
