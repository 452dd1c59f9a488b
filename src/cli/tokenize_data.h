/* `hyper tokenize --dataset`: the samples of a data set. */
#ifndef CLI_TOKENIZE_DATA_H
#define CLI_TOKENIZE_DATA_H

int tokenize_dataset(int argc, char **argv);

#endif
