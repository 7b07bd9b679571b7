from mlc_llm.serve.server.popen_server import PopenServer as PopenServer
from mlc_llm.serve.server.server_context import ServerContext as ServerContext
