/*!
 * \file opencl/device_api.h
 * \brief TVM's interface of devices for OpenCL.
 */
#ifndef AIOMLC_OPENCL_DEVICE_API_H_
#define AIOMLC_OPENCL_DEVICE_API_H_

namespace aiomlc::opencl {

/*! \brief Return the `tvm::runtime::DeviceAPI*` of OpenCL. */
void* SharedDeviceApi();

}  // namespace aiomlc::opencl

#endif  // AIOMLC_OPENCL_DEVICE_API_H_
