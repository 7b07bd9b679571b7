from aiomlc import PagedRadixTree as PagedRadixTree
