from aiomlc import Conversation as Conversation
from aiomlc import MessagePlaceholders as MessagePlaceholders
