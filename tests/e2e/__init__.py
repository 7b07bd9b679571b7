"""End-to-end tests with the bundled model: API, command line and examples."""
