/*!
 * \file kernels/moe/expert_rows.h
 * \brief The rows of a mixture, sorted by the experts they go to.
 */
#ifndef AIOMLC_KERNELS_MOE_EXPERT_ROWS_H_
#define AIOMLC_KERNELS_MOE_EXPERT_ROWS_H_

#include <cstdint>
#include <vector>

#include "kernels/linear/linear_kernels.h"
#include "kernels/moe/experts.h"

namespace aiomlc {

/*! \brief Rows that one expert computes together; of an expert's panels only the last is short. */
struct ExpertPanel {
  int64_t place = 0;  //!< The first of its places.
  int64_t height = 0;
};

/*!
 * \brief A place for every row at every expert it goes to: first those of the first expert, in the
 * order of the rows.
 *
 * Its memory is kept from call to call.
 */
class ExpertRows {
 public:
  void Assign(ThreadPool& pool, const ExpertsCall& call);

  int64_t num_places() const { return static_cast<int64_t>(row_.size()); }
  int64_t row(int64_t place) const { return row_[place]; }
  /*! \return The weight of a row's expert in its sum. */
  float weight(int64_t place) const { return weight_[place]; }

  /*! \return The experts that have rows, ascending. */
  const std::vector<int64_t>& experts() const { return experts_; }
  int64_t begin(int64_t expert) const { return begin_[expert]; }
  int64_t count(int64_t expert) const { return begin_[expert + 1] - begin_[expert]; }

  const std::vector<ExpertPanel>& panels() const { return panels_; }

 private:
  void Sort(const ExpertsCall& call);
  void FindPanels();

  std::vector<int32_t> chosen_;  // [rows, per_row]
  std::vector<float> chosen_weight_;
  std::vector<int64_t> row_;  // By place.
  std::vector<float> weight_;
  std::vector<int64_t> begin_;
  std::vector<int64_t> next_;
  std::vector<int64_t> experts_;
  std::vector<ExpertPanel> panels_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_MOE_EXPERT_ROWS_H_
