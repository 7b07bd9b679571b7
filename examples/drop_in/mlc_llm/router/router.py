from aiomlc.serve import Router as Router
