"""Models on an OpenCL device, for which Intel's driver for processors stands."""
