"""The Model Context Protocol: tools by which agents use the server, at `/mcp`."""
