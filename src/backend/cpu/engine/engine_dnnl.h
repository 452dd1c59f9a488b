/* ENGINE_HAS_DNNL: the headers of oneDNN 2.x, the version that is loaded, were found. */
#ifndef ENGINE_DNNL_H
#define ENGINE_DNNL_H

#define ENGINE_HAS_DNNL 0
#if defined(__has_include)
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR == 2
#undef ENGINE_HAS_DNNL
#define ENGINE_HAS_DNNL 1
#endif
#endif
#endif

#endif
