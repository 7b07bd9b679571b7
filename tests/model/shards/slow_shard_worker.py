"""A worker process that never opens its model."""

import time

if __name__ == "__main__":
    time.sleep(600)
