#include "base/status.h"
int main(void) { return 0; }
