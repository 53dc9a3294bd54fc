#include "module.h"

NB_MODULE(_core, m) {
  slipstream::bind_errors(m);
  slipstream::bind_dtypes(m);
  slipstream::bind_arrays(m);
  slipstream::bind_group(m);
  slipstream::bind_runtime(m);
}
