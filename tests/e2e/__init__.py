"""The bundled model, from outside: the API, the command line, the README."""
