/** Swagger UI for the server's OpenAPI document. */
SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#reference',
  deepLinking: true,
  // The default sends the document's URL to a host of Swagger's.
  validatorUrl: null,
});
