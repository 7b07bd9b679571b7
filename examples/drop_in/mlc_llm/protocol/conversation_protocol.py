from aiomlc import Conversation as Conversation
