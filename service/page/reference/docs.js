/** The interface with requests to try out: Swagger UI, of the document next to this page. */
SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#reference',
  deepLinking: true,
  // By default it sends the document's address to a host of its maker's.
  validatorUrl: null,
});
